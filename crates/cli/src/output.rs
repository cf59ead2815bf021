//! The answer, in the form that was asked for.

use std::io::Write;

use comfy_table::{Table, presets};
use headwater_proto::admin::Version;
use serde_json::Value;

use crate::arguments::Format;
use crate::exit::Error;

/// What a command answers: the same for programs and for people.
#[derive(Default)]
pub(crate) struct Answer {
    /// For `-o json` and `-o yaml`.
    pub(crate) document: Value,
    /// For `-o table`.
    pub(crate) text: String,
}

// === impl Answer ===

impl Answer {
    /// Writes it to standard output.
    pub(crate) fn print(&self, format: Format) -> Result<(), Error> {
        let text = match format {
            Format::Table => self.text.clone(),
            Format::Json => format!("{:#}\n", self.document),
            Format::Yaml => {
                serde_saphyr::to_string(&self.document).map_err(|error| Error::Answer(error.to_string()))?
            }
        };
        let mut out = std::io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            // Whoever reads has seen enough, as `head` does.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            other => Ok(other?),
        }
    }
}

/// Rows under headings, without lines, so that they can be cut into columns.
pub(crate) fn table(headings: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(headings.to_vec());
    table.add_rows(rows);
    let lines: Vec<String> = table.lines().map(|line| line.trim().to_owned()).collect();
    format!("{}\n", lines.join("\n"))
}

/// A version as `generation.revision`, or a dash.
pub(crate) fn version(version: Option<&Version>) -> String {
    version.map_or_else(|| "-".into(), |version| format!("{}.{}", version.generation, version.revision))
}

/// A version for programs.
pub(crate) fn version_document(version: Option<&Version>) -> Value {
    version.map_or(Value::Null, |version| {
        serde_json::json!({
            "version": format!("{}.{}", version.generation, version.revision),
            "cluster_id": format!("{:x}", version.cluster_id),
            "prefix": version.prefix,
            "generation": version.generation,
            "revision": version.revision,
            "digest": version.digest,
        })
    })
}

/// A time span in its largest two units.
pub(crate) fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{}s", seconds / 60, seconds % 60),
        3600..86400 => format!("{}h{}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d{}h", seconds / 86400, seconds % 86400 / 3600),
    }
}

/// Notes go to standard error, each on a line, when there is something to say.
pub(crate) fn note(text: &str) {
    if !text.is_empty() {
        eprintln!("note: {text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_cut_into_columns() {
        let text =
            table(&["KEY", "REVISION"], [vec!["routes/1".into(), "5".into()], vec!["a".into(), "10".into()]]);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows, [["KEY", "REVISION"], ["routes/1", "5"], ["a", "10"]]);
    }

    #[test]
    fn spans_are_short() {
        assert_eq!([0, 61, 3_700, 90_000].map(span), ["0s", "1m1s", "1h1m", "1d1h"]);
    }
}
