//! A file has one subject; six hundred lines are more than one subject takes.

/// Lines a file may have.
const LINES_MAX: usize = 600;

/// The fault of a file that is too long.
pub(crate) fn check(path: &str, text: &str) -> Option<String> {
    let lines = text.lines().count();
    (lines > LINES_MAX)
        .then(|| format!("{path}: has {lines} lines, at most {LINES_MAX} are allowed: split it by subject"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_limit() {
        assert_eq!(check("a.rs", &"\n".repeat(600)), None);
        assert!(check("a.rs", &"\n".repeat(601)).is_some());
    }
}
