//! Rust text as a row of words, without comments, literals and what follows an inline test module.
//!
//! Not a parser: it knows just enough of the lexical rules not to take a comment or a string for code.

/// An identifier or keyword.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word<'a> {
    pub(crate) text: &'a str,
    /// From 1.
    pub(crate) line: usize,
    /// The last character before it that is no blank.
    pub(crate) before: Option<char>,
}

/// The words up to the first `#[cfg(test)] mod name {`.
pub(crate) fn words(text: &str) -> Vec<Word<'_>> {
    let mut words: Vec<Word<'_>> = Vec::new();
    let mut before = None;
    let mut line = 1;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = token(rest, first);
        let (taken, after) = rest.split_at(length);
        if taken.chars().all(is_word) {
            words.push(Word { text: taken, line, before });
        } else if first == '{' && opens_tests(&words) {
            return words;
        }
        if !first.is_whitespace() && !is_comment(taken) {
            before = taken.chars().last();
        }
        line += taken.matches('\n').count();
        rest = after;
    }
    words
}

/// The length of the token at the beginning of `rest`, at least that of its first character.
fn token(rest: &str, first: char) -> usize {
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return block_comment(rest);
    }
    if let Some(length) = raw_string(rest) {
        return length;
    }
    match first {
        '"' => quoted(rest, '"'),
        '\'' => character(rest),
        first if is_word(first) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
        first => first.len_utf8(),
    }
}

/// Block comments nest.
fn block_comment(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        let tail = &rest.as_bytes()[at..];
        if tail.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if tail.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// `r"..."`, `r#"..."#`, `br"..."`: ends at its own number of hashes.
fn raw_string(rest: &str) -> Option<usize> {
    let prefix = ["r", "br", "cr"].into_iter().find(|prefix| {
        rest.strip_prefix(prefix).is_some_and(|after| after.trim_start_matches('#').starts_with('"'))
    })?;
    let after = &rest[prefix.len()..];
    let hashes = after.len() - after.trim_start_matches('#').len();
    let start = prefix.len() + hashes + 1;
    let end = format!("\"{}", "#".repeat(hashes));
    Some(rest[start..].find(&end).map_or(rest.len(), |found| start + found + end.len()))
}

/// From a quote to the next that is not escaped.
fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}

/// A character literal, or a lifetime, of which the name is swallowed.
fn character(rest: &str) -> usize {
    let mut chars = rest.chars().skip(1);
    match (chars.next(), chars.next()) {
        (Some('\\'), _) | (Some(_), Some('\'')) => quoted(rest, '\''),
        _ => 1 + rest[1..].find(|c| !is_word(c)).unwrap_or(rest.len() - 1),
    }
}

fn opens_tests(words: &[Word<'_>]) -> bool {
    let last: Vec<&str> = words.iter().rev().take(4).map(|word| word.text).collect();
    matches!(last.as_slice(), [_, "mod", "test", "cfg"])
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn is_comment(taken: &str) -> bool {
    taken.starts_with("//") || taken.starts_with("/*")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let found: Vec<&str> = words(text).iter().map(|word| word.text).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn comments_and_literals_are_no_words() {
        check("a // b\nc", &["a", "c"]);
        check("a /* b /* c */ d */ e", &["a", "e"]);
        check(r#"a("b \" c", 'd', '\'', b"e") f"#, &["a", "b", "f"]);
        check(r##"a r#"b " c"# d"##, &["a", "d"]);
        check("fn a<'b>(c: &'b str)", &["fn", "a", "c", "str"]);
    }

    #[test]
    fn lines_and_what_stands_before_are_kept() {
        let words = words("a\n  .b /* \n */ c");
        assert_eq!(words[1], Word { text: "b", line: 2, before: Some('.') });
        assert_eq!(words[2], Word { text: "c", line: 3, before: Some('b') });
    }

    #[test]
    fn inline_tests_end_the_row_but_a_child_file_does_not() {
        check("a #[cfg(test)] mod tests { b }", &["a", "cfg", "test", "mod", "tests"]);
        check("a #[cfg(test)] mod tests; b", &["a", "cfg", "test", "mod", "tests", "b"]);
    }
}
