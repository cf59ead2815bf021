//! What the system says about processes and their connections.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// File descriptors a process needs beside one for each connection.
const SPARE_FILES: u64 = 256;

/// Raises the limit on open files for this process and those it starts.
///
/// # Errors
/// When the system does not allow as many as `connections` need.
pub fn allow_files(connections: u64) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let needed = connections + SPARE_FILES;
    let wanted = limit.maximum.unwrap_or(needed);
    anyhow::ensure!(
        wanted >= needed,
        "{needed} open files are needed and the hard limit is {wanted}: raise it (ulimit -Hn), or use fewer nodes"
    );
    if limit.current.is_some_and(|current| current < wanted) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum })
            .context("raise the limit on open files")?;
    }
    Ok(())
}

/// The processor time a process has used, in microseconds; of the resolution of the system's clock tick.
///
/// # Errors
/// When the system does not say (it does on Linux).
pub fn cpu_microseconds(process: u32) -> Result<u64> {
    let path = format!("/proc/{process}/stat");
    let text = std::fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    // The name of the program, in brackets, may hold anything; fields 14 and 15 are user and system time.
    let fields = text.rsplit_once(") ").context("no program name")?.1;
    let mut fields = fields.split_whitespace().skip(11);
    let mut ticks = || -> Result<u64> { Ok(fields.next().context("a short line")?.parse()?) };
    let (user, system) = (ticks()?, ticks()?);
    Ok((user + system) * 1_000_000 / rustix::param::clock_ticks_per_second())
}

/// The resident memory of a process, in KiB.
///
/// # Errors
/// When the system does not say (it does on Linux).
pub fn resident_kib(process: u32) -> Result<u64> {
    let path = format!("/proc/{process}/status");
    let text = std::fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no resident memory")?;
    line.trim().trim_end_matches(" kB").parse().context("a number of KiB")
}

/// The load average of the last minute.
///
/// # Errors
/// When the system does not say (it does on Linux).
pub fn load_average() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").context("read /proc/loadavg")?;
    text.split_whitespace().next().context("an empty line")?.parse().context("a load average")
}

/// How many established connections there are to a port of the loopback, without those of this process.
///
/// # Errors
/// When the system does not say.
pub fn connections_to(port: u16) -> Result<usize> {
    let own = sockets(std::process::id())?;
    let text = std::fs::read_to_string("/proc/net/tcp").context("read /proc/net/tcp")?;
    let suffix = format!(":{port:04X}");
    let counted = text.lines().skip(1).filter(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // The client's end of an established connection, which names the socket of its process.
        let [_, _, remote, "01", _, _, _, _, _, inode, ..] = fields.as_slice() else { return false };
        remote.ends_with(&suffix) && !own.contains(*inode)
    });
    Ok(counted.count())
}

/// How many threads a process has, and how many files and sockets it holds open.
///
/// # Errors
/// When the system does not say (it does on Linux).
pub fn threads_and_files(process: u32) -> Result<(usize, usize)> {
    let count = |folder: &str| -> Result<usize> {
        let path = format!("/proc/{process}/{folder}");
        Ok(std::fs::read_dir(&path).with_context(|| format!("read {path}"))?.count())
    };
    Ok((count("task")?, count("fd")?))
}

/// The sockets a process holds, by the numbers the system gives them.
fn sockets(process: u32) -> Result<BTreeSet<String>> {
    let path = format!("/proc/{process}/fd");
    let files = std::fs::read_dir(&path).with_context(|| format!("read {path}"))?;
    let targets = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    Ok(targets
        .filter_map(|target| Some(target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn own_connections_are_left_out_and_time_passes() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let _client = std::net::TcpStream::connect(address).unwrap();
        assert_eq!(connections_to(address.port()).unwrap(), 0);
        let (threads, files) = threads_and_files(std::process::id()).unwrap();
        assert!(threads > 1 && files > 2, "{threads} threads, {files} files");
        assert!(cpu_microseconds(std::process::id()).is_ok());
        assert!(resident_kib(std::process::id()).unwrap() > 100);
        assert!(load_average().unwrap() >= 0.0);
    }
}
