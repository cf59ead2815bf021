//! Which etcd releases may be believed when they say that everything up to a revision was delivered. Pure.
//!
//! The table is the outcome of a study of etcd's watch bugs; a row's reason names the issues in etcd's own tracker.
//! A release outside every row, a prerelease and a text that is no release are treated as unsafe.

use super::tracker::MemberVersion;

/// What a release may be trusted with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trust {
    /// Its progress responses, periodic and asked for, move the safe revision.
    pub progress: bool,
    /// A resumed watch may lose a deletion at the compact revision: read everything at each reconnect.
    pub relist_on_resume: bool,
    /// What an operator should know, with the cure.
    pub note: Option<String>,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Row {
    /// Progress is a barrier.
    Yes,
    /// Progress is a barrier behind a monotonic filter, which the tracker always has (W10, W11).
    Filtered(&'static str),
    /// As before, and each reconnect reads everything.
    Relist(&'static str),
    /// Events are lost, replayed, or overtaken by progress.
    No(&'static str),
}

/// First release of the row, last release (inclusive; `None`: every later one of the minor), the row.
type Line = ((u32, u32), u32, Option<u32>, Row);

const OVERTAKEN: &str =
    "progress may overtake events (#15220) and a slow watch may skip what was compacted (#17529)";
const SKIPS: &str =
    "a slow watch may skip what was compacted, and progress then covers it up (#17529, #17507)";
const LOSES_DELETE: &str = "a resumed watch may lose a deletion (#18089, #19179)";
const FUTURE: &str = "a watch may answer below its start (#20221)";

const TABLE: &[Line] = &[
    ((3, 4), 0, Some(24), Row::No(OVERTAKEN)),
    ((3, 4), 25, Some(30), Row::No(SKIPS)),
    ((3, 4), 31, Some(35), Row::Relist(LOSES_DELETE)),
    ((3, 4), 36, Some(37), Row::Filtered(FUTURE)),
    ((3, 4), 38, None, Row::Yes),
    ((3, 5), 0, Some(7), Row::No(OVERTAKEN)),
    ((3, 5), 8, Some(12), Row::No(SKIPS)),
    ((3, 5), 13, Some(17), Row::Relist(LOSES_DELETE)),
    ((3, 5), 18, Some(21), Row::Filtered(FUTURE)),
    ((3, 5), 22, None, Row::Yes),
    ((3, 6), 0, Some(1), Row::Filtered(FUTURE)),
    ((3, 6), 2, None, Row::Yes),
];

/// From this minor on every release is a plain yes.
const YES_FROM: (u32, u32) = (3, 7);

/// Judges a member by its release. `assumed` stands in where Status is denied; `allow_unsafe` lets a bad row pass.
///
/// # Errors
/// Why the member must not be followed, with the cure, in a sentence.
pub fn judge(version: &MemberVersion, assumed: Option<&str>, allow_unsafe: bool) -> Result<Trust, String> {
    let (text, prefix) = match (version, assumed) {
        (MemberVersion::Known(version), _) => (version.as_str(), String::new()),
        (MemberVersion::Denied(_), Some(assumed)) => {
            (assumed, format!("Status is denied to this user, so etcd {assumed} is assumed as configured. "))
        }
        // Denied is a case of its own: it says nothing about the release.
        (MemberVersion::Denied(why), None) => {
            return Err(format!(
                "the member's release cannot be seen ({why}): grant the user Status, or set assume_version"
            ));
        }
    };
    let note = |text: String| (!(prefix.is_empty() && text.is_empty())).then(|| format!("{prefix}{text}"));
    let row = row_of(text);
    Ok(match row {
        Row::Yes => Trust { progress: true, relist_on_resume: false, note: note(String::new()) },
        Row::Filtered(bug) => Trust {
            progress: true,
            relist_on_resume: false,
            note: note(format!("etcd {text}: {bug}; it is filtered out, but do upgrade")),
        },
        Row::Relist(bug) => Trust {
            progress: true,
            relist_on_resume: true,
            note: note(format!("etcd {text}: {bug}; everything is read at each reconnect. Do upgrade")),
        },
        Row::No(bug) if allow_unsafe => Trust {
            progress: false,
            relist_on_resume: true,
            note: note(format!(
                "UNSAFE etcd {text}, allowed by allow_unsafe_etcd: {bug}; only an audit every 30 s stands in for it"
            )),
        },
        Row::No(bug) => {
            return Err(format!(
                "{prefix}etcd {text} must not be followed: {bug}. Upgrade to 3.5.22, 3.6.2 or later (or set allow_unsafe_etcd)"
            ));
        }
    })
}

/// Whether the release is a plain yes: what tests of delivery need.
#[must_use]
pub fn is_plain_yes(version: &str) -> bool {
    row_of(version) == Row::Yes
}

fn row_of(text: &str) -> Row {
    let Some((minor, patch)) = parse(text) else {
        return Row::No("it is no stable release, and only those were examined");
    };
    if minor >= YES_FROM && minor.0 == 3 {
        return Row::Yes;
    }
    TABLE
        .iter()
        .find(|(of, first, last, _)| *of == minor && patch >= *first && last.is_none_or(|last| patch <= last))
        .map_or(Row::No("its minor version was never examined"), |(.., row)| *row)
}

/// `major.minor.patch`, digits only: a prerelease or a build suffix does not parse.
fn parse(text: &str) -> Option<((u32, u32), u32)> {
    let mut numbers = text.split('.').map(|part| {
        let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| part.parse::<u32>().ok()).flatten()
    });
    let parsed = ((numbers.next()??, numbers.next()??), numbers.next()??);
    numbers.next().is_none().then_some(parsed)
}

// === impl Trust ===

impl Trust {
    /// Before anything is known.
    pub const NOTHING: Self = Self { progress: false, relist_on_resume: true, note: None };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(version: &str) -> MemberVersion {
        MemberVersion::Known(version.to_owned())
    }

    fn kind(version: &str) -> &'static str {
        match judge(&known(version), None, false) {
            Err(_) => "no",
            Ok(Trust { relist_on_resume: true, .. }) => "relist",
            Ok(Trust { note: Some(_), .. }) => "filtered",
            Ok(_) => "yes",
        }
    }

    #[test]
    fn w23_both_ends_of_every_row_of_the_table() {
        let rows = [
            ("no", "3.4.0 3.4.24 3.4.25 3.4.30 3.5.0 3.5.7 3.5.8 3.5.12"),
            ("relist", "3.4.31 3.4.35 3.5.13 3.5.17"),
            ("filtered", "3.4.36 3.4.37 3.5.18 3.5.21 3.6.0 3.6.1"),
            ("yes", "3.4.38 3.4.45 3.5.22 3.5.33 3.6.2 3.6.16 3.7.0 3.7.3 3.8.0"),
        ];
        for (expected, versions) in rows {
            for version in versions.split(' ') {
                assert_eq!(kind(version), expected, "{version}");
            }
        }
    }

    #[test]
    fn w23_a_prerelease_or_an_unparsable_text_is_unsafe() {
        for version in [
            "3.6.0-rc.1",
            "3.6.2+git",
            "",
            "3.6",
            "v3.6.2",
            "3.6.2.1",
            "3.+6.2",
            "kine",
            "2.3.8",
            "4.0.0",
            "3.3.27",
        ] {
            assert_eq!(kind(version), "no", "{version:?}");
        }
    }

    #[test]
    fn the_override_is_loud_and_trusts_nothing() {
        let trust = judge(&known("3.5.1"), None, true).expect("allowed");
        assert!(!trust.progress && trust.relist_on_resume);
        let note = trust.note.expect("said");
        assert!(note.contains("UNSAFE") && note.contains("#15220"), "{note}");
    }

    #[test]
    fn a_refusal_names_version_and_bug() {
        let refusal = judge(&known("3.5.12"), None, false).expect_err("refused");
        assert!(refusal.contains("3.5.12") && refusal.contains("#17529"), "{refusal}");
    }

    #[test]
    fn denied_status_is_not_old_and_can_be_overridden() {
        let denied = MemberVersion::Denied("permission denied".to_owned());
        let refusal = judge(&denied, None, true).expect_err("unknown is not allowed by allow_unsafe_etcd");
        assert!(refusal.contains("assume_version"), "{refusal}");
        let trust = judge(&denied, Some("3.6.16"), false).expect("assumed");
        assert!(trust.progress && trust.note.is_some_and(|note| note.contains("3.6.16")));
        assert!(judge(&denied, Some("3.5.1"), false).is_err());
    }
}
