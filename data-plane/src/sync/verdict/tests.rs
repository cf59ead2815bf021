//! Each rule of the verdict, by name, over the real judge.

use bytes::Bytes;

use super::*;

const GOOD: &str = r#"{"uri":"/a","upstream_id":"1"}"#;
const ROUTE: &str = r#"{"uri":"/b","upstream_id":"1"}"#;
const BAD: &str = r#"{"uri":7,"upstream_id":"1"}"#;
const UPSTREAM: &str = r#"{"type":"roundrobin","nodes":{"127.0.0.1:80":1}}"#;

fn resource(key: &str, value: &str, create: u64, modified: u64) -> Arc<Resource> {
    let value = Bytes::copy_from_slice(value.as_bytes());
    Arc::new(Resource::new(Key::new(key), value, Revision(create), Revision(modified)))
}

fn verdict() -> Verdict<Values> {
    Verdict::new(Values::default())
}

fn puts(puts: &[&Arc<Resource>]) -> Changes {
    Changes { deletes: Vec::new(), puts: puts.iter().map(|put| (*put).clone()).collect() }
}

fn deletes(keys: &[&str]) -> Changes {
    Changes { deletes: keys.iter().map(|key| Key::new(*key)).collect(), puts: Vec::new() }
}

/// A verdict that serves route 1 with its upstream.
fn serving() -> Verdict<Values> {
    let mut verdict = verdict();
    verdict.apply(&puts(&[&resource("upstreams/1", UPSTREAM, 1, 1), &resource("routes/1", GOOD, 2, 2)]), 100);
    verdict
}

fn answer(found: &Arc<Resource>, rejected: u64) -> FallbackAnswer {
    FallbackAnswer {
        key: found.key().clone(),
        create_revision: found.create_revision(),
        rejected: Revision(rejected),
        found: Some(found.clone()),
    }
}

#[test]
fn a_usable_value_is_served() {
    let mut verdict = verdict();
    let out = verdict.apply(&puts(&[&resource("routes/1", GOOD, 2, 2)]), 100);
    assert_eq!(out.effective.puts.len(), 1);
    assert!(verdict.rejects().is_empty() && out.requests.is_empty());
}

#[test]
fn a_rejected_value_leaves_the_last_served_one_with_what_it_references() {
    let mut verdict = serving();
    let out = verdict.apply(&puts(&[&resource("routes/1", BAD, 2, 5)]), 200);
    let served = &out.effective.puts[0];
    assert_eq!(served.resource.mod_revision(), Revision(2));
    assert!(served.kept.as_ref().unwrap().references.contains_key("upstreams/1"));
    let reject = &out.rejects.rejected[0];
    assert_eq!(
        (reject.mod_revision, reject.served, reject.since_unix),
        (Revision(5), Some(Revision(2)), 200)
    );
    assert!(reject.reason.contains("uri"), "{}", reject.reason);
    assert!(out.requests.is_empty());
}

#[test]
fn references_deleted_by_the_same_transaction_are_kept() {
    let mut verdict = serving();
    let mut changes = puts(&[&resource("routes/1", BAD, 2, 5), &resource("upstreams/2", UPSTREAM, 5, 5)]);
    changes.deletes.push(Key::new("upstreams/1"));
    verdict.apply(&changes, 200);
    let kept = verdict.served("routes/1").unwrap().kept.clone().expect("retained");
    assert!(kept.references.contains_key("upstreams/1"));
    assert!(verdict.served("upstreams/1").is_none());
}

#[test]
fn a_second_rejected_value_changes_the_reason_and_keeps_since_and_what_is_served() {
    let mut verdict = serving();
    verdict.apply(&puts(&[&resource("routes/1", BAD, 2, 5)]), 200);
    let out = verdict.apply(&puts(&[&resource("routes/1", "{", 2, 6)]), 300);
    assert!(out.effective.puts.is_empty(), "nothing to compile");
    let reject = &out.rejects.rejected[0];
    assert_eq!(
        (reject.mod_revision, reject.served, reject.since_unix),
        (Revision(6), Some(Revision(2)), 200)
    );
}

#[test]
fn a_usable_value_clears_the_reject() {
    let mut verdict = serving();
    verdict.apply(&puts(&[&resource("routes/1", BAD, 2, 5)]), 200);
    let out = verdict.apply(&puts(&[&resource("routes/1", ROUTE, 2, 6)]), 300);
    assert_eq!(out.rejects.cleared, [Key::new("routes/1")]);
    assert!(out.effective.puts[0].kept.is_none() && verdict.retained().is_empty());
}

#[test]
fn going_back_to_the_served_value_clears_the_reject_and_lets_go_of_what_was_kept() {
    let mut verdict = serving();
    verdict.apply(&puts(&[&resource("routes/1", BAD, 2, 5)]), 200);
    let out = verdict.apply(&puts(&[&resource("routes/1", GOOD, 2, 6)]), 300);
    assert!(out.effective.puts[0].kept.is_none());
    assert!(verdict.rejects().is_empty());
}

#[test]
fn a_retained_value_is_dropped_with_its_key() {
    let mut verdict = serving();
    verdict.apply(&puts(&[&resource("routes/1", BAD, 2, 5)]), 200);
    let out = verdict.apply(&deletes(&["routes/1"]), 300);
    assert_eq!(out.effective.deletes, [Key::new("routes/1")]);
    assert_eq!(out.rejects.cleared, [Key::new("routes/1")]);
    assert!(verdict.served("routes/1").is_none());
}

#[test]
fn another_life_of_the_key_does_not_inherit_the_retained_value() {
    let mut verdict = serving();
    let out = verdict.apply(&puts(&[&resource("routes/1", BAD, 9, 9)]), 200);
    assert!(verdict.served("routes/1").is_none());
    assert_eq!(out.effective.refused[0].0, Key::new("routes/1"));
    assert_eq!(out.requests[0].create_revision, Revision(9));
}

#[test]
fn with_nothing_to_serve_an_older_value_is_asked_for_and_taken() {
    let mut verdict = verdict();
    let out = verdict.apply(&puts(&[&resource("routes/1", BAD, 2, 5)]), 200);
    let request =
        FallbackRequest { key: Key::new("routes/1"), create_revision: Revision(2), below: Revision(5) };
    assert_eq!(out.requests, [request]);
    assert_eq!(out.rejects.rejected[0].served, None);
    let out = verdict.fallback(&answer(&resource("routes/1", GOOD, 2, 3), 5));
    assert_eq!(out.effective.puts.len(), 1);
    assert_eq!(out.rejects.rejected[0].served, Some(Revision(3)));
    assert_eq!(verdict.retained()[0].served.mod_revision(), Revision(3));
}

#[test]
fn a_late_fallback_is_dropped() {
    let old = resource("routes/1", GOOD, 2, 3);
    let rejected = || {
        let mut verdict = verdict();
        verdict.apply(&puts(&[&resource("routes/1", BAD, 2, 5)]), 200);
        verdict
    };
    let mut deleted = rejected();
    deleted.apply(&deletes(&["routes/1"]), 300);
    let mut rewritten = rejected();
    rewritten.apply(&puts(&[&resource("routes/1", "{", 2, 6)]), 300);
    let mut usable = rejected();
    usable.apply(&puts(&[&resource("routes/1", ROUTE, 2, 6)]), 300);
    let mut reborn = rejected();
    reborn.apply(&puts(&[&resource("routes/1", BAD, 7, 7)]), 300);
    for mut verdict in [deleted, rewritten, usable, reborn] {
        let before = verdict.served("routes/1").map(|served| served.resource.mod_revision());
        let out = verdict.fallback(&answer(&old, 5));
        assert!(out.effective.puts.is_empty() && out.rejects.rejected.is_empty());
        assert_eq!(verdict.served("routes/1").map(|served| served.resource.mod_revision()), before);
    }
}

#[test]
fn a_fallback_that_cannot_be_used_or_does_not_exist_changes_nothing() {
    let mut verdict = verdict();
    verdict.apply(&puts(&[&resource("routes/1", BAD, 2, 5)]), 200);
    let unusable = answer(&resource("routes/1", "{", 2, 3), 5);
    let none = FallbackAnswer { found: None, ..unusable.clone() };
    for answer in [unusable, none] {
        assert!(verdict.fallback(&answer).effective.puts.is_empty());
    }
    assert_eq!(verdict.rejects()[0].served, None);
}

#[test]
fn an_equal_value_moves_the_revision_and_compiles_nothing() {
    let mut verdict = serving();
    let out = verdict.apply(&puts(&[&resource("routes/1", GOOD, 2, 8)]), 200);
    assert!(out.effective.puts.is_empty() && out.effective.deletes.is_empty());
    assert_eq!(verdict.served("routes/1").unwrap().resource.mod_revision(), Revision(8));
}

#[test]
fn retained_values_and_since_outlive_a_restart() {
    let mut before = serving();
    let bad = resource("routes/1", BAD, 2, 5);
    let mut changes = puts(&[&bad]);
    changes.deletes.push(Key::new("upstreams/1"));
    before.apply(&changes, 200);

    let content: Content = [bad].into_iter().collect();
    let mut after = verdict();
    let out = after.restore(&content, &before.retained(), 900);
    assert_eq!(out.effective.puts.len(), 1);
    let kept = out.effective.puts[0].kept.clone().expect("retained");
    assert!(kept.references.contains_key("upstreams/1"), "with what it referenced");
    assert!(out.requests.is_empty() && out.effective.refused.is_empty());
    assert!(out.rejects.full);
    assert_eq!(out.rejects.rejected, before.rejects(), "the same rejects, since the same time");
    assert_eq!(after.retained(), before.retained());
}

#[test]
fn a_restart_takes_no_retained_value_of_a_key_that_is_gone_reborn_or_usable() {
    let mut before = serving();
    before.apply(&puts(&[&resource("routes/1", BAD, 2, 5)]), 200);
    let rows = before.retained();
    let reborn = resource("routes/1", BAD, 7, 7);
    for (content, served, rejects) in [
        (vec![], None, 0),
        (vec![reborn], None, 1),
        (vec![resource("routes/1", ROUTE, 2, 6)], Some(Revision(6)), 0),
    ] {
        let mut after = verdict();
        let content: Content = content.into_iter().collect();
        after.restore(&content, &rows, 900);
        let now = after.served("routes/1").map(|served| served.resource.mod_revision());
        assert_eq!((now, after.rejects().len()), (served, rejects));
    }
}

#[test]
fn a_governing_value_is_one_reject_with_the_count_of_routes() {
    let mut verdict = serving();
    let rule = resource("global_rules/1", r#"{"plugins":{"limit-count":{"count":1}}}"#, 4, 4);
    let out = verdict.apply(&puts(&[&rule, &resource("routes/2", ROUTE, 4, 4)]), 200);
    let reject = &out.rejects.rejected[0];
    assert_eq!((reject.governs, reject.served), (2, None));
    assert!(out.effective.puts.iter().any(|put| matches!(put.typed, Typed::Governing(_))));
    assert!(out.requests.is_empty(), "an older value would be no answer");
    let out = verdict.apply(&deletes(&["routes/2"]), 300);
    assert_eq!((out.rejects.rejected[0].governs, out.rejects.rejected[0].since_unix), (1, 200));
    let out = verdict.apply(&deletes(&["global_rules/1"]), 400);
    assert_eq!(out.rejects.cleared, [Key::new("global_rules/1")]);
}

#[test]
fn a_governing_value_that_the_operator_allows_by_name_is_passed_over() {
    let allowed = ["global_rules/1".to_owned()].into();
    let mut verdict = Verdict::new(Values { allowed, ..Values::default() });
    let rule = resource("global_rules/1", r#"{"plugins":{"limit-count":{"count":1}}}"#, 4, 4);
    verdict.apply(&puts(&[&rule]), 200);
    assert!(verdict.rejects().is_empty());
}
