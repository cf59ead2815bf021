use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};

type Script = Box<dyn Fn(usize) -> io::Result<Vec<IpAddr>> + Send + Sync>;

struct Scripted {
    calls: AtomicUsize,
    script: Script,
}

impl Lookup for Scripted {
    fn lookup(&self, _: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        let answer = (self.script)(call);
        Box::pin(async move { answer })
    }
}

const WAIT: Duration = Duration::from_secs(1);

fn names(
    script: impl Fn(usize) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static,
) -> (Arc<Names>, Arc<Scripted>, Supervisor) {
    let lookup = Arc::new(Scripted { calls: AtomicUsize::new(0), script: Box::new(script) });
    let names = Arc::new(Names::new(Arc::<Scripted>::clone(&lookup), ResolverConfig::default()));
    let supervisor = Supervisor::new("test");
    supervisor.spawn(
        "names",
        Policy::best_effort().dropped_on_cancel(),
        Arc::clone(&names).run(supervisor.clone()),
    );
    (names, lookup, supervisor)
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn last_good_addresses_outlive_failures_and_empty_answers() {
    let (names, lookup, _supervisor) = names(|call| match call {
        0 => Ok(vec![ip("10.0.0.1")]),
        1..30 => Err(io::Error::other("SERVFAIL")),
        30..60 => Ok(vec![]),
        _ => Ok(vec![ip("10.0.0.2")]),
    });
    let name = names.get("a.test");
    assert_eq!(*name.addresses(WAIT).await.unwrap(), [ip("10.0.0.1")]);
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert!(lookup.calls.load(Ordering::SeqCst) > 30, "it keeps asking");
    assert_eq!(*name.addresses(WAIT).await.unwrap(), [ip("10.0.0.1")]);
    names.changed().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(*name.addresses(WAIT).await.unwrap(), [ip("10.0.0.2")]);
}

#[tokio::test(start_paused = true)]
async fn a_moved_name_is_followed_within_ten_seconds() {
    let (names, _lookup, _supervisor) =
        names(|call| Ok(vec![if call < 3 { ip("10.0.0.1") } else { ip("10.0.0.9") }]));
    let name = names.get("a.test");
    assert_eq!(*name.addresses(WAIT).await.unwrap(), [ip("10.0.0.1")]);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(*name.known(), [ip("10.0.0.9")]);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_never_resolved_says_why_at_once_and_recovers() {
    let (names, _lookup, _supervisor) = names(|call| {
        if call < 3 {
            Err(io::Error::other("NXDOMAIN"))
        } else {
            Ok(vec![ip("::1"), ip("10.0.0.1"), ip("10.0.0.1")])
        }
    });
    let name = names.get("a.test");
    assert_eq!(name.addresses(WAIT).await, Err("NXDOMAIN".into()));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(*name.addresses(WAIT).await.unwrap(), [ip("10.0.0.1"), ip("::1")]);
}

#[tokio::test(start_paused = true)]
async fn a_lookup_that_hangs_is_a_failure() {
    struct Hanging;
    impl Lookup for Hanging {
        fn lookup(&self, _: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
            Box::pin(std::future::pending())
        }
    }
    let names = Arc::new(Names::new(Arc::new(Hanging), ResolverConfig::default()));
    let supervisor = Supervisor::new("test");
    supervisor.spawn("names", Policy::best_effort(), Arc::clone(&names).run(supervisor.clone()));
    let name = names.get("a.test");
    let why = name.addresses(Duration::from_secs(30)).await.unwrap_err();
    assert!(why.contains("no answer within"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn one_name_is_looked_up_once_for_all_and_not_after_its_last_user() {
    let (names, lookup, supervisor) = names(|_| Ok(vec![ip("10.0.0.1")]));
    let one = names.get("a.test");
    let two = names.get("a.test");
    assert!(Arc::ptr_eq(&one, &two));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(lookup.calls.load(Ordering::SeqCst), 1);
    drop((one, two));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(lookup.calls.load(Ordering::SeqCst), 1);
    names.sweep();
    assert!(names.known.is_empty());
    assert_eq!(supervisor.running().len(), 1, "only the starter is left");
}

#[tokio::test]
async fn the_system_knows_localhost() {
    let found = SystemLookup::default().lookup("localhost").await.unwrap();
    assert!(found.iter().all(IpAddr::is_loopback));
    assert!(!found.is_empty());
}
