//! Which certificate object a server name gets: one test a rule.

use super::*;

/// An ssl's JSON with a fresh key pair and these fields.
pub(super) fn ssl(fields: &str) -> String {
    let made = rcgen::generate_simple_self_signed(vec!["a.com".to_owned()]).unwrap();
    let (cert, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    format!(r#"{{"cert":{},"key":{},{fields}}}"#, serde_json::json!(cert), serde_json::json!(key))
}

/// A table of objects with these fields under the ids `1`, `2`, ...
fn objects(all: &[&str]) -> Table<Live> {
    let puts = all.iter().enumerate().map(|(n, fields)| served(&format!("ssls/{}", n + 1), &ssl(fields)));
    after(&Table::empty(), &EffectiveChanges { puts: puts.collect(), ..Default::default() })
}

/// The id of the object a name gets.
fn shown(table: &Table<Live>, name: &str) -> Option<usize> {
    let found = table.certificate(name)?;
    let place = table.ssls.values().position(|ssl| Arc::ptr_eq(ssl, &found));
    place.map(|place| place + 1)
}

#[test]
fn an_exact_name_goes_before_a_wildcard_and_the_longest_wildcard_first() {
    let table =
        objects(&[r#""sni":"*""#, r#""sni":"*.a.com""#, r#""sni":"x.a.com""#, r#""sni":"*.b.a.com""#]);
    for (name, id) in
        [("x.a.com", 3), ("y.a.com", 2), ("y.b.a.com", 4), ("other.org", 1), ("deep.other.org", 1)]
    {
        assert_eq!(shown(&table, name), Some(id), "{name}");
    }
}

#[test]
fn a_wildcard_takes_one_label_and_nothing_else_is_tried() {
    let table = objects(&[r#""sni":"*""#, r#""snis":["*.a.com"]"#]);
    assert_eq!(shown(&table, "y.x.a.com"), None);
    assert_eq!(shown(&table, "a.com"), Some(1));
    let table = objects(&[r#""sni":"*.a.com""#]);
    assert_eq!(shown(&table, "a.com"), None);
    assert_eq!(shown(&table, "other.org"), None);
}

#[test]
fn a_star_among_snis_takes_names_without_a_dot() {
    let table = objects(&[r#""snis":["*"]"#]);
    assert_eq!(shown(&table, "localhost"), Some(1));
    assert_eq!(shown(&table, "a.com"), None);
}

#[test]
fn the_first_object_by_key_wins_a_name() {
    let table = objects(&[r#""sni":"a.com""#, r#""sni":"a.com""#]);
    assert_eq!(shown(&table, "a.com"), Some(1));
    let without = after(&table, &delete("ssls/1"));
    assert!(without.certificate("a.com").is_some());
    assert!(after(&without, &delete("ssls/2")).certificate("a.com").is_none());
}

#[test]
fn names_compare_in_lower_case_and_without_a_trailing_dot() {
    let table = objects(&[r#""snis":["A.Com.","*.B.com"]"#]);
    for name in ["a.com", "A.COM", "a.com.", "x.b.COM."] {
        assert_eq!(shown(&table, name), Some(1), "{name}");
    }
}

#[test]
fn objects_that_are_off_or_for_upstreams_are_not_shown() {
    let table = objects(&[r#""sni":"a.com","status":0"#, r#""sni":"a.com","type":"client""#]);
    assert_eq!(table.certificates(), 2);
    assert_eq!(shown(&table, "a.com"), None);
}

#[test]
fn a_changed_object_is_shown_from_then_on() {
    let table = objects(&[r#""sni":"a.com""#]);
    let (next, stats) = table.apply(&put(&[("ssls/1", &ssl(r#""sni":"b.com""#))]), &Plain);
    assert_eq!(stats.ssls, 1);
    assert!(next.certificate("a.com").is_none());
    assert!(next.certificate("b.com").is_some());
}
