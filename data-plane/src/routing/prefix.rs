//! Walking from a text to the stored texts that are prefixes of it, in an ordered map. Pure.

/// The stored texts that `text` begins with, longest first.
///
/// `floor` gives the greatest stored text that is not above the one it is asked for, by bytes. Every stored prefix
/// of a text stands at or below that one, and within what the two have in common; so each step of the walk either
/// finds a prefix or shortens the text to what is common, and no step looks at more than one stored text.
pub(crate) fn longest_first<'a, F>(text: &str, floor: F) -> impl Iterator<Item = &'a str>
where
    F: Fn(&str) -> Option<&'a str>,
{
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        loop {
            let upto = rest?;
            let found = floor(upto)?;
            let common = upto.bytes().zip(found.bytes()).take_while(|(left, right)| left == right).count();
            if common == found.len() {
                rest = common.checked_sub(1).map(|shorter| head(upto, shorter));
                return Some(found);
            }
            rest = Some(head(upto, common));
        }
    })
}

/// The first `length` bytes, or fewer where that would split a character.
fn head(text: &str, length: usize) -> &str {
    let mut end = length;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn walk(stored: &BTreeSet<String>, text: &str) -> Vec<String> {
        let floor =
            |upto: &str| stored.iter().take_while(|known| known.as_str() <= upto).last().map(String::as_str);
        longest_first(text, floor).map(str::to_owned).collect()
    }

    #[test]
    fn the_empty_text_is_a_prefix_of_all() {
        assert_eq!(walk(&BTreeSet::from([String::new()]), "x"), [""]);
        assert_eq!(walk(&BTreeSet::from([String::new()]), ""), [""]);
    }

    proptest! {
        #[test]
        fn the_walk_finds_exactly_the_prefixes(
            stored in prop::collection::btree_set("[abä]{0,5}", 0..12),
            text in "[abä]{0,7}",
        ) {
            let mut naive: Vec<_> = stored.iter().filter(|known| text.starts_with(known.as_str())).cloned().collect();
            naive.sort_by_key(|known| std::cmp::Reverse(known.len()));
            prop_assert_eq!(walk(&stored, &text), naive);
        }
    }
}
