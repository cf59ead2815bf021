//! The rules of the workspace that neither rustc nor clippy knows: which crate may import which, which modules are
//! pure, how long a file may be. `make lint` runs this; ARCHITECTURE.md gives the reasons.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

mod edges;
mod length;
mod purity;
mod source;

fn main() -> ExitCode {
    match run() {
        Ok(faults) if faults.is_empty() => ExitCode::SUCCESS,
        Ok(faults) => {
            for fault in &faults {
                println!("{fault}");
            }
            println!("{} fault(s) against the rules of the workspace", faults.len());
            ExitCode::FAILURE
        }
        Err(error) => {
            println!("lint cannot run: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<Vec<String>, Box<dyn Error>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let answer =
        Command::new(cargo).args(["metadata", "--format-version=1", "--no-deps", "--locked"]).output()?;
    if !answer.status.success() {
        return Err(String::from_utf8_lossy(&answer.stderr).into());
    }
    let metadata: edges::Metadata = serde_json::from_slice(&answer.stdout)?;
    let mut faults = edges::check(&metadata);
    let mut files = Vec::new();
    collect(&metadata.workspace_root, &mut files)?;
    files.sort();
    let mut paths = Vec::new();
    for file in &files {
        let shown = file.strip_prefix(&metadata.workspace_root)?.to_string_lossy().replace('\\', "/");
        let text = std::fs::read_to_string(file)?;
        faults.extend(length::check(&shown, &text));
        faults.extend(purity::check(&shown, &text));
        paths.push(shown);
    }
    faults.extend(purity::unused(&paths));
    Ok(faults)
}

/// All Rust files below `folder`, built and hidden ones apart.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                collect(&path, files)?;
            }
        } else if name.ends_with(".rs") {
            files.push(path);
        }
    }
    Ok(())
}
