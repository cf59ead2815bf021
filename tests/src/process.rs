//! Real processes: started, watched line by line, stopped in every way there is.
//!
//! A process that is dropped is killed. If that happens because a test fails, the last lines of its output are
//! printed with the failure.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// Lines kept of a process's output; older ones go.
const LINES_MAX: usize = 50_000;
/// Lines printed when a test fails.
const TAIL: usize = 60;
/// How often, a millisecond apart, it is looked whether a paused process stands still.
const STANDSTILL_LOOKS: u32 = 2_000;

/// How to start a process; can be started again.
#[derive(Debug, Clone)]
pub struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
}

/// A started process.
#[derive(Debug)]
pub struct Process {
    program: Program,
    child: Child,
    output: Arc<Output>,
}

#[derive(Debug)]
struct Output {
    lines: Mutex<Lines>,
    /// Rises with every line and at each end of a stream.
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Lines {
    kept: VecDeque<String>,
    /// How many lines were let go before the first kept one.
    gone: usize,
}

/// The path of one of our own binaries, freshly built: `headwater`, `headwater-control-plane` or
/// `headwater-data-plane`.
///
/// `make test` builds them first; a test that is run alone builds them here, once a process, so that none ever runs
/// a stale binary.
///
/// # Panics
/// When they do not build.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(build).join(name)
}

fn build() -> PathBuf {
    // A test runs from <target>/<profile>/deps/, a benchmark from <target>/<profile>/.
    let own = std::env::current_exe().expect("a running test has a path");
    let mut folder = own.parent().expect("an executable lies in a folder");
    if folder.ends_with("deps") {
        folder = folder.parent().expect("`deps` lies in the profile's folder");
    }
    let target = folder.parent().expect("a profile lies in the target folder");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR")).args(["build", "--quiet", "--locked", "--bins"]);
    cargo.args(["-p", "headwater-control-plane", "-p", "headwater-data-plane", "-p", "headwater-cli"]);
    cargo.arg("--target-dir").arg(target);
    // What cargo tells a test of its package is news to build scripts that look at it (ring's does): they and all that
    // rests on them would be built anew now, and again at the next call from outside.
    for (name, _) in std::env::vars_os() {
        if name
            .to_str()
            .is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
        {
            cargo.env_remove(name);
        }
    }
    if folder.ends_with("release") {
        cargo.arg("--release");
    }
    let status = cargo.status().expect("cargo built this test, so it runs");
    assert!(status.success(), "our own binaries do not build: run `cargo build --bins` to see why");
    folder.to_owned()
}

// === impl Program ===

impl Program {
    /// A program at a path, or found on `PATH`.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self { path: path.as_ref().to_owned(), arguments: Vec::new(), environment: Vec::new() }
    }

    /// One of our own binaries.
    #[must_use]
    pub fn own(name: &str) -> Self {
        Self::new(binary(name))
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Starts it.
    ///
    /// # Panics
    /// When the program cannot be started at all.
    #[must_use]
    pub fn start(&self) -> Process {
        let mut command = Command::new(&self.path);
        command.args(&self.arguments).envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => panic!("{} does not start: {error}", self.path.display()),
        };
        let output = Arc::new(Output { lines: Mutex::default(), changes: watch::Sender::new(0) });
        output.follow(child.stdout.take().expect("stdout is piped"));
        output.follow(child.stderr.take().expect("stderr is piped"));
        Process { program: self.clone(), child, output }
    }

    /// Runs it to its end and answers how it ended and what it wrote.
    ///
    /// # Panics
    /// When it does not start, or has not ended within `limit`.
    pub async fn run(&self, limit: Duration) -> (ExitStatus, Vec<String>) {
        let mut process = self.start();
        let status = process.wait(limit).await;
        (status, process.lines())
    }
}

// === impl Process ===

impl Process {
    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, and waits for the end. For one that has ended already nothing happens.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// SIGTERM, and no wait.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// SIGINT, and no wait.
    pub fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    /// SIGSTOP: it stays there, with its sockets, and does nothing. Answers once all its threads stand still; the
    /// signal alone is no more than a wish that a busy machine may leave open for a while.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        let Some(id) = self.pid() else { return };
        for _ in 0..STANDSTILL_LOOKS {
            // An error says that it has ended: that is still, too.
            match waitid(WaitId::Pid(id), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG) {
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                Ok(Some(_)) | Err(_) => return,
            }
        }
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills it if it still runs, and starts the same program again. Its output begins anew.
    pub fn restart(&mut self) {
        self.kill();
        *self = self.program.start();
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for the end.
    ///
    /// # Panics
    /// When it has not come within `limit`.
    pub async fn wait(&mut self, limit: Duration) -> ExitStatus {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                self.output.settle().await;
                return status;
            }
            assert!(Instant::now() < deadline, "{} still runs after {limit:?}", self.program.path.display());
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// The first line, from the start on, that holds `text`; waits for it.
    ///
    /// # Panics
    /// When there is none within `limit`, or the process ended without one.
    pub async fn line(&mut self, text: &str, limit: Duration) -> String {
        let mut changes = self.output.changes.subscribe();
        let mut seen = 0;
        let deadline = Instant::now() + limit;
        loop {
            changes.borrow_and_update();
            let ended = !self.is_running();
            if ended {
                self.output.settle().await;
            }
            if let Some(line) = self.output.find(text, &mut seen) {
                return line;
            }
            let path = self.program.path.display();
            assert!(!ended, "{path} ended without the line {text:?}");
            let rest = deadline.saturating_duration_since(Instant::now());
            assert!(!rest.is_zero(), "{path} did not write {text:?} within {limit:?}");
            // An end without a line must be seen too, so look again from time to time.
            let _ = timeout(rest.min(Duration::from_millis(50)), changes.changed()).await;
        }
    }

    /// All lines so far, of both streams.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.output.lock().kept.iter().cloned().collect()
    }

    /// Resident memory now, in KiB, as the system has it; `None` where it does not say.
    #[must_use]
    pub fn resident_kib(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).ok()?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
        line.split_whitespace().nth(1)?.parse().ok()
    }

    fn signal(&self, signal: Signal) {
        // One that has ended cannot be signalled; whoever minds waits for its end.
        let _ = self.pid().map(|id| kill_process(id, signal));
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let lines = self.lines();
            eprintln!("--- last lines of {} ---", self.program.path.display());
            lines.iter().skip(lines.len().saturating_sub(TAIL)).for_each(|line| eprintln!("{line}"));
        }
    }
}

// === impl Output ===

impl Output {
    /// Reads a stream to its end, on a thread of its own: tests block and pause the runtime.
    fn follow(self: &Arc<Self>, stream: impl Read + Send + 'static) {
        let output = Arc::clone(self);
        std::thread::spawn(move || {
            for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
                output.push(String::from_utf8_lossy(&line).into_owned());
            }
            output.changes.send_modify(|changes| *changes += 1);
        });
    }

    fn push(&self, line: String) {
        let mut lines = self.lock();
        lines.kept.push_back(line);
        if lines.kept.len() > LINES_MAX {
            lines.kept.pop_front();
            lines.gone += 1;
        }
        drop(lines);
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// The first line from number `seen` on that holds `text`; moves `seen` past what was looked at.
    fn find(&self, text: &str, seen: &mut usize) -> Option<String> {
        let lines = self.lock();
        let fresh = seen.saturating_sub(lines.gone);
        let found = lines.kept.iter().skip(fresh).find(|line| line.contains(text)).cloned();
        *seen = lines.gone + lines.kept.len();
        found
    }

    /// After the end of a process: gives its last lines the time to arrive. The threads hold the other references.
    async fn settle(self: &Arc<Self>) {
        for _ in 0..100 {
            if Arc::strong_count(self) == 1 {
                return;
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    fn shell(script: &str) -> Program {
        Program::new("/bin/sh").args(["-c", script])
    }

    #[tokio::test]
    async fn lines_of_both_streams_are_found() {
        let mut process = shell("echo ready on 7; echo oops >&2; sleep 60").start();
        assert_eq!(process.line("ready", LIMIT).await, "ready on 7");
        assert_eq!(process.line("oops", LIMIT).await, "oops");
        assert!(process.is_running());
        assert_eq!(process.resident_kib().is_some_and(|kib| kib > 0), cfg!(target_os = "linux"));
    }

    #[tokio::test]
    #[should_panic(expected = "ended without the line \"ready\"")]
    async fn an_end_without_the_line_fails_at_once() {
        shell("echo nothing of the kind").start().line("ready", Duration::from_secs(600)).await;
    }

    #[tokio::test]
    #[should_panic(expected = "did not write \"ready\" within")]
    async fn a_line_that_never_comes_fails() {
        shell("sleep 60").start().line("ready", Duration::from_millis(200)).await;
    }

    #[tokio::test]
    async fn killed_terminated_and_restarted() {
        let trap = "trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.01; done";
        let mut process = shell(trap).start();
        process.line("up", LIMIT).await;
        process.terminate();
        assert_eq!(process.wait(LIMIT).await.code(), Some(3));
        assert_eq!(process.lines(), ["up", "bye"]);

        process.restart();
        process.line("up", LIMIT).await;
        assert_eq!(process.lines(), ["up"], "the output begins anew");
        process.kill();
        assert_eq!(process.wait(LIMIT).await.signal(), Some(9));
    }

    #[tokio::test]
    async fn a_paused_process_writes_nothing_until_resumed() {
        let mut process = shell("i=0; while :; do i=$((i+1)); echo line $i; sleep 0.01; done").start();
        process.line("line 3", LIMIT).await;
        process.pause();
        process.pause();
        let state = std::fs::read_to_string(format!("/proc/{}/stat", process.id()));
        assert!(state.is_ok_and(|it| it.contains(") T ")) || cfg!(not(target_os = "linux")), "it goes on");
        // What it had written may still be on its way.
        sleep(Duration::from_millis(100)).await;
        let before = process.lines().len();
        sleep(Duration::from_millis(200)).await;
        assert_eq!(process.lines().len(), before);
        process.resume();
        process.line(&format!("line {}", before + 3), LIMIT).await;
    }

    #[tokio::test]
    async fn a_dropped_process_is_gone() {
        let process = shell("sleep 60").start();
        let id = Pid::from_raw(i32::try_from(process.id()).unwrap()).unwrap();
        assert!(rustix::process::test_kill_process(id).is_ok());
        drop(process);
        assert!(rustix::process::test_kill_process(id).is_err());
    }

    #[tokio::test]
    async fn run_answers_status_and_output() {
        let (status, lines) = shell("echo $WORD; exit 5").env("WORD", "hello").run(LIMIT).await;
        assert_eq!((status.code(), lines), (Some(5), vec!["hello".to_owned()]));
    }
}
