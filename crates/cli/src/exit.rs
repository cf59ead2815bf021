//! How a command ended, for scripts, and every error it can end with.

use std::path::PathBuf;
use std::process::ExitCode;

use tonic::{Code, Status};

/// The table of exit codes, for `--help`.
pub(crate) const HELP: &str = "\
Exit codes:
  0  done; for wait: applied on every expected node
  1  failed or refused
  2  wrong arguments, or a file that cannot be used; nothing was sent
  3  wait: not applied everywhere within the time
  4  wait: cannot say (the replica has just started, or no longer knows)
  5  the replica or its source is away, or the replica does not write now
  6  the outcome of a write is unknown: read before you repeat it
  7  the resource has changed since it was read (--if-mod-revision)
  8  held by the mass-deletion guard: see `headwater hold show`
";

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    Done = 0,
    Failed = 1,
    Usage = 2,
    NotEverywhere = 3,
    CannotSay = 4,
    Away = 5,
    OutcomeUnknown = 6,
    Conflict = 7,
    Held = 8,
}

/// Why a command ended before its answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The arguments do not go together.
    #[error("{0}")]
    Usage(String),
    /// A file cannot be read or is not what it should be.
    #[error("{}: {problem}", path.display())]
    File { path: PathBuf, problem: String },
    /// The TLS files are no good.
    #[error(transparent)]
    Tls(#[from] headwater_tls::TlsError),
    /// No connection.
    #[error("{server} cannot be reached: {cause}. Is it the admin address of a replica (--server)?")]
    Unreachable { server: String, cause: String },
    /// The replica refused.
    #[error("{}", sentence(.0))]
    Refused(#[from] Status),
    /// Standard output is closed or full.
    #[error("the answer cannot be written: {0}")]
    Output(#[from] std::io::Error),
    /// The replica's answer is not one.
    #[error("the replica's answer cannot be used: {0}")]
    Answer(String),
}

// === impl Exit ===

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl Exit {
    /// By the word of a wait's outcome.
    pub(crate) fn of_wait(outcome: &str) -> Self {
        match outcome {
            "applied" => Self::Done,
            "pending" | "no_nodes" => Self::NotEverywhere,
            "cannot_say_yet" | "cannot_say" => Self::CannotSay,
            "held" => Self::Held,
            _ => Self::Failed,
        }
    }

    /// By the word of a refusal.
    pub(crate) fn of_reason(reason: &str) -> Self {
        match reason {
            "degraded" | "unavailable" | "not_complete" => Self::Away,
            "outcome_unknown" => Self::OutcomeUnknown,
            "conflict" => Self::Conflict,
            _ => Self::Failed,
        }
    }
}

// === impl Error ===

impl Error {
    /// The exit code.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) | Self::File { .. } | Self::Tls(_) => Exit::Usage,
            Self::Unreachable { .. } => Exit::Away,
            Self::Output(_) | Self::Answer(_) => Exit::Failed,
            Self::Refused(status) => match reason(status) {
                Some(reason) => Exit::of_reason(reason),
                // Without a word it is the transport that speaks.
                None if status.code() == Code::Unavailable => Exit::Away,
                None => Exit::Failed,
            },
        }
    }
}

fn reason(status: &Status) -> Option<&str> {
    status.metadata().get("headwater-reason").and_then(|reason| reason.to_str().ok())
}

fn sentence(status: &Status) -> String {
    match reason(status) {
        Some(_) => status.message().to_owned(),
        None => format!("{} ({:?})", status.message(), status.code()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_stands_in_the_help() {
        for exit in [
            Exit::Done,
            Exit::Failed,
            Exit::Usage,
            Exit::NotEverywhere,
            Exit::CannotSay,
            Exit::Away,
            Exit::OutcomeUnknown,
            Exit::Conflict,
            Exit::Held,
        ] {
            assert!(HELP.contains(&format!("\n  {}  ", exit as u8)), "{exit:?}");
        }
    }

    #[test]
    fn only_applied_is_success() {
        for outcome in
            ["pending", "no_nodes", "cannot_say_yet", "cannot_say", "history_replaced", "refused", "held"]
        {
            assert_ne!(Exit::of_wait(outcome), Exit::Done, "{outcome}");
        }
        assert_eq!(Exit::of_wait("applied"), Exit::Done);
        assert_eq!(Exit::of_wait("a word of the future"), Exit::Failed);
    }

    #[test]
    fn a_refusal_keeps_its_sentence() {
        let mut status = Status::aborted("routes/1 is at mod revision 9, not at 5");
        status
            .metadata_mut()
            .insert("headwater-reason", tonic::metadata::MetadataValue::from_static("conflict"));
        let error = Error::from(status);
        assert_eq!((error.exit(), error.to_string().contains("mod revision 9")), (Exit::Conflict, true));
        assert_eq!(Error::from(Status::unavailable("x")).exit(), Exit::Away);
    }
}
