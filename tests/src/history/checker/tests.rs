//! Each guarantee is seen broken by a planted history.

use super::*;

/// Revision 10 holds a; 11 puts a and b together; 12 deletes a; 13 puts b; 14 changes nothing of content.
fn history() -> History {
    let mut history = History::begin(10, [("r/a".to_owned(), fact("r/a", 10, 10, "1"))]);
    let both = vec![
        ("r/a".to_owned(), Some(fact("r/a", 10, 11, "2"))),
        ("r/b".to_owned(), Some(fact("r/b", 11, 11, "1"))),
    ];
    history.committed(11, both);
    history.committed(12, vec![("r/a".to_owned(), None)]);
    history.committed(13, vec![("r/b".to_owned(), Some(fact("r/b", 11, 13, "2")))]);
    history.committed(14, Vec::new());
    history
}

fn fact(key: &str, create: u64, modified: u64, value: &str) -> Fact {
    Fact::new(key, create, modified, value.as_bytes())
}

fn version(revision: u64, digest: Option<Digest>) -> Version {
    Version { generation: 0, revision, digest }
}

/// What a node shows at a revision that has this one's content.
fn shows_as(revision: u64, content_of: u64) -> Sighting {
    let digest = history().digest_at(content_of);
    let version = version(revision, digest);
    Sighting { life: "1".into(), version, durable: Some(revision), told: Told::Nothing }
}

fn shows(revision: u64) -> Sighting {
    shows_as(revision, revision)
}

fn reborn(mut sighting: Sighting) -> Sighting {
    sighting.life = "2".into();
    sighting
}

fn told(revision: u64, told: Told) -> Sighting {
    Sighting { life: "1".into(), version: version(revision, None), durable: None, told }
}

fn first() -> Sighting {
    told(10, Told::All(vec![("r/a".into(), fact("r/a", 10, 10, "1"))]))
}

fn step(revision: u64, puts: &[(&str, Fact)], deletes: &[&str]) -> Sighting {
    let puts = puts.iter().map(|(key, fact)| ((*key).to_owned(), *fact)).collect();
    let deletes = deletes.iter().map(|key| (*key).to_owned()).collect();
    told(revision, Told::Changes { puts, deletes, step: true })
}

fn a() -> (&'static str, Fact) {
    ("r/a", fact("r/a", 10, 11, "2"))
}

fn b() -> (&'static str, Fact) {
    ("r/b", fact("r/b", 11, 11, "1"))
}

fn last() -> (&'static str, Fact) {
    ("r/b", fact("r/b", 11, 13, "2"))
}

fn judged(sightings: &[Sighting]) -> Checker {
    let (history, mut checker) = (history(), Checker::new("n1"));
    sightings.iter().for_each(|sighting| checker.see(sighting, &[&history]));
    checker.end(&history);
    checker
}

#[track_caller]
fn breaks(sightings: &[Sighting], guarantee: Guarantee, what: &str) {
    let found = judged(sightings);
    let named = found.breaches().iter().any(|it| it.guarantee == guarantee && it.what.contains(what));
    assert!(named, "{guarantee:?} {what:?}: {:?}", found.breaches());
}

#[test]
fn what_happened_is_no_breach_in_single_revisions_or_merged() {
    let keys = BTreeMap::from([("r/b".to_owned(), (11, 13))]);
    let whole = Sighting { told: Told::Keys(keys), ..shows(13) };
    for kept in [
        vec![shows(10), shows(11), shows(11), shows(13), whole, shows(14)],
        vec![shows(10), shows(12), reborn(shows(12)), reborn(shows(14))],
        vec![first(), step(11, &[a(), b()], &[]), step(12, &[], &["r/a"]), step(14, &[last()], &[])],
        vec![first(), step(13, &[last()], &["r/a"])],
        // From before the log began nothing is known.
        vec![Sighting { version: version(5, Some(Digest(7))), ..shows(10) }, shows(14)],
    ] {
        let found = judged(&kept);
        assert_eq!((found.breaches(), found.violations()), (&[][..], 0));
        assert!(found.checks().values().sum::<u64>() > 4, "{:?}", found.checks());
    }
}

#[test]
fn a_version_that_goes_back_is_found() {
    breaks(&[shows(11), shows(13), shows(12), shows(14)], Guarantee::Ordered, "back");
    let mut lower = shows(14);
    lower.version.generation = 1;
    breaks(&[lower, shows(14)], Guarantee::Ordered, "from generation 1");
}

#[test]
fn a_torn_version_is_found() {
    // Of revision 11 the half, shown and told.
    let torn = BTreeMap::from([("r/a".to_owned(), (10, 11))]);
    breaks(&[Sighting { told: Told::Keys(torn), ..shows(11) }], Guarantee::Atomic, "no r/b");
    let mixed = BTreeMap::from([("r/a".to_owned(), (10, 10)), ("r/b".to_owned(), (11, 11))]);
    breaks(&[Sighting { told: Told::Keys(mixed), ..shows(11) }], Guarantee::Atomic, "r/a of 10");
    breaks(&[first(), step(11, &[a()], &[])], Guarantee::Atomic, "of no revision");
    // The content of before under the number of after.
    breaks(&[shows(10), shows_as(11, 10)], Guarantee::Atomic, "that of revision 10");
}

#[test]
fn an_invented_version_is_found() {
    let invented = Sighting { version: version(12, Some(Digest(7))), ..shows(12) };
    breaks(&[invented, shows(14)], Guarantee::Atomic, "of no revision");
    let never = ("r/c", fact("r/c", 12, 12, "1"));
    breaks(&[first(), step(12, &[b(), never], &["r/a"])], Guarantee::Reliable, "never was");
    let other_value = ("r/b", fact("r/b", 11, 13, "3"));
    breaks(&[first(), step(13, &[other_value], &["r/a"])], Guarantee::Reliable, "never was");
    breaks(&[shows_as(15, 14)], Guarantee::Bookmarkable, "etcd is at 14");
}

#[test]
fn a_missing_version_is_found() {
    breaks(&[shows(10), shows(12)], Guarantee::Reliable, "ends at revision 12");
    breaks(&[first(), step(12, &[], &["r/a"])], Guarantee::Resumable, "without [\"r/b\"]");
    breaks(&[first(), step(11, &[a(), b()], &[])], Guarantee::Reliable, "ends at revision 11");
    breaks(&[], Guarantee::Reliable, "never seen");
}

#[test]
fn what_is_told_twice_or_lost_over_a_restart_is_found() {
    breaks(&[first(), step(11, &[a(), b(), b()], &[])], Guarantee::Unique, "twice");
    let twice = Told::All(vec![("r/a".into(), a().1), ("r/a".into(), a().1)]);
    breaks(&[told(11, twice)], Guarantee::Unique, "twice");
    breaks(&[shows(11), shows_as(11, 12)], Guarantee::Unique, "two contents");
    let again = [first(), step(11, &[a(), b()], &[]), step(12, &[b()], &["r/a"])];
    breaks(&again, Guarantee::Bookmarkable, "again");
    breaks(&[shows(12), reborn(shows(11)), reborn(shows(14))], Guarantee::Resumable, "was durable");
}

/// etcd was restored at 11 and went on: 12 puts b again.
fn restored() -> History {
    let content = [("r/a".to_owned(), a().1), ("r/b".to_owned(), b().1)];
    let mut restored = History::begin(11, content);
    restored.committed(12, vec![("r/b".to_owned(), Some(fact("r/b", 11, 12, "3")))]);
    restored
}

fn judged_over(histories: &[&History], sightings: &[Sighting]) -> Checker {
    let mut checker = Checker::new("n1");
    sightings.iter().for_each(|sighting| checker.see(sighting, histories));
    checker.end(histories.last().unwrap());
    checker
}

#[test]
fn a_restore_may_lower_the_revision_once_and_nobody_returns_to_the_old_history() {
    let (old, new) = (history(), restored());
    let after = |generation, revision| {
        let version = Version { generation, revision, digest: restored().digest_at(revision) };
        Sighting { version, ..shows(revision) }
    };
    for generation in [0, 1] {
        let followed = judged_over(&[&old, &new], &[shows(13), shows(14), after(generation, 12)]);
        assert_eq!(followed.breaches(), [], "{generation}");
        let reborn_after = judged_over(&[&old, &new], &[shows(14), reborn(after(generation, 12))]);
        assert_eq!(reborn_after.breaches(), [], "{generation}");
    }
    let back = judged_over(&[&old, &new], &[shows(14), after(1, 12), shows(13), after(1, 12)]);
    assert!(back.breaches().iter().any(|it| it.guarantee == Guarantee::Ordered), "{:?}", back.breaches());
    let stays = judged_over(&[&old, &new], &[shows(14)]);
    assert!(stays.breaches().iter().any(|it| it.guarantee == Guarantee::Reliable), "{:?}", stays.breaches());
}
