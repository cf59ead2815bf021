//! A linear matcher, written from the rules alone and sharing nothing with the index, and the index against it.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::*;

const TABLES: u64 = 2_000;
const REQUESTS: usize = 200;

/// A route as its writer thinks of it.
#[derive(Clone, Debug)]
struct Plain {
    id: String,
    uris: Vec<String>,
    hosts: Vec<String>,
    methods: Vec<&'static str>,
    peers: Vec<&'static str>,
    priority: i64,
}

#[derive(Debug)]
struct Request {
    host: String,
    path: String,
    method: &'static str,
    peer: &'static str,
}

// === the naive matcher ===

/// Hosts first: exact, then each wildcard by the longest suffix, at last the routes without hosts.
fn naive(routes: &[Plain], request: &Request) -> Option<String> {
    let mut suffixes: Vec<&str> =
        routes.iter().flat_map(|route| &route.hosts).filter_map(|host| host.strip_prefix('*')).collect();
    suffixes.retain(|suffix| request.host.ends_with(suffix));
    suffixes.sort_by_key(|suffix| std::cmp::Reverse(suffix.len()));
    suffixes.dedup();
    let mut tiers: Vec<Vec<&Plain>> =
        vec![routes.iter().filter(|r| r.hosts.contains(&request.host)).collect()];
    for suffix in suffixes {
        tiers.push(routes.iter().filter(|r| r.hosts.contains(&format!("*{suffix}"))).collect());
    }
    tiers.push(routes.iter().filter(|route| route.hosts.is_empty()).collect());
    tiers.into_iter().find_map(|tier| by_uri(&tier, request))
}

/// Within a host: the exact list, then prefix keys that the path begins with, longest first.
fn by_uri(routes: &[&Plain], request: &Request) -> Option<String> {
    let pairs: Vec<(&Plain, &str)> =
        routes.iter().flat_map(|route| route.uris.iter().map(|uri| (*route, uri.as_str()))).collect();
    let exact = pairs.iter().copied().filter(|(_, uri)| !uri.contains('*') && *uri == request.path).collect();
    if let Some(id) = first(exact, request) {
        return Some(id);
    }
    for length in (0..=request.path.len()).rev() {
        let key = &request.path[..length];
        let list =
            pairs.iter().copied().filter(|(_, uri)| uri.split_once('*').is_some_and(|(l, _)| l == key));
        if let Some(id) = first(list.collect(), request) {
            return Some(id);
        }
    }
    None
}

/// Within a key: priority, longer pattern, key order; the first whose conditions hold.
fn first(mut list: Vec<(&Plain, &str)>, request: &Request) -> Option<String> {
    list.sort_by_key(|(route, uri)| (-route.priority, -(uri.len() as i64), route.id.clone()));
    let holds = |(route, uri): &&(&Plain, &str)| {
        let method = route.methods.is_empty() || route.methods.contains(&request.method);
        let peer = route.peers.is_empty() || route.peers.contains(&request.peer);
        method && peer && second_look(uri, &request.path)
    };
    list.iter().find(holds).map(|(route, _)| route.id.clone())
}

/// A star that begins a segment makes the whole pattern count: the star spans anything, its segment's rest is a name.
fn second_look(uri: &str, path: &str) -> bool {
    let segments: Vec<&str> = uri.split('/').collect();
    if !uri.contains('*') || !segments.iter().any(|segment| segment.starts_with('*')) {
        return true;
    }
    let parts: Vec<Option<&str>> =
        segments.iter().map(|segment| (!segment.starts_with('*')).then_some(*segment)).collect();
    glob(&parts, path, true)
}

fn glob(parts: &[Option<&str>], path: &str, first: bool) -> bool {
    let Some((part, rest)) = parts.split_first() else { return path.is_empty() };
    let path = if first {
        path
    } else {
        let Some(path) = path.strip_prefix('/') else { return false };
        path
    };
    match part {
        Some(text) => path.strip_prefix(text).is_some_and(|path| glob(rest, path, false)),
        None => (0..=path.len()).any(|taken| glob(rest, &path[taken..], false)),
    }
}

// === random tables and requests ===

fn pick<T: Clone>(rng: &mut StdRng, of: &[T]) -> T {
    of.choose(rng).unwrap().clone()
}

fn several<T: Clone + PartialEq>(
    rng: &mut StdRng,
    most: usize,
    mut draw: impl FnMut(&mut StdRng) -> T,
) -> Vec<T> {
    let mut all = Vec::new();
    for _ in 0..rng.random_range(0..=most) {
        let one = draw(rng);
        if !all.contains(&one) {
            all.push(one);
        }
    }
    all
}

/// Segments in which a star is followed by text that is no expression's business: `a*` ends the pattern there only
/// while no other segment begins with a star, so the two are not mixed.
fn uri(rng: &mut StdRng) -> String {
    let segments: &[&str] = if rng.random_bool(0.5) {
        &["a", "b", "ab", "", "*", "*n"]
    } else {
        &["a", "b", "ab", "", "a*", "b*x"]
    };
    (0..rng.random_range(1..=3)).map(|_| format!("/{}", pick(rng, segments))).collect()
}

fn table(rng: &mut StdRng) -> Vec<Plain> {
    let hosts = ["a.com", "b.a.com", "c.b.a.com", "*.a.com", "*a.com", "*.b.a.com", "*", "*.com", "*m"];
    (0..rng.random_range(1..=14))
        .map(|n| {
            let mut uris = several(rng, 2, uri);
            uris.push(uri(rng));
            uris.dedup();
            if uris.len() == 3 && uris[0] == uris[2] {
                uris.pop();
            }
            Plain {
                id: n.to_string(),
                uris,
                hosts: several(rng, 2, |rng| pick(rng, &hosts).to_owned()),
                methods: if rng.random_bool(0.3) { vec![pick(rng, &["GET", "POST"])] } else { Vec::new() },
                peers: if rng.random_bool(0.2) {
                    vec![pick(rng, &["10.0.0.1", "10.0.0.2"])]
                } else {
                    Vec::new()
                },
                priority: rng.random_range(-1..=1),
            }
        })
        .collect()
}

fn request(rng: &mut StdRng) -> Request {
    let hosts = ["a.com", "b.a.com", "c.b.a.com", "x.b.a.com", "xa.com", "d.org", "com", ""];
    let path: String = (0..rng.random_range(1..=4))
        .map(|_| format!("/{}", pick(rng, &["a", "b", "ab", "x", "", "abx"])))
        .collect();
    Request {
        host: pick(rng, &hosts).to_owned(),
        path,
        method: pick(rng, &["GET", "POST", "BREW"]),
        peer: pick(rng, &["10.0.0.1", "10.0.0.2", "10.0.0.3"]),
    }
}

fn insert(router: &mut Router, plain: &Plain) {
    let (key, route) = parsed(plain);
    router.insert(&key, &route, &route.hosts);
}

fn parsed(plain: &Plain) -> (Key, Arc<Route>) {
    let mut json = serde_json::json!({
        "uris": plain.uris, "methods": plain.methods, "priority": plain.priority,
    });
    if !plain.hosts.is_empty() {
        json["hosts"] = plain.hosts.clone().into();
    }
    if !plain.peers.is_empty() {
        json["remote_addrs"] = plain.peers.clone().into();
    }
    route(&format!("routes/{}", plain.id), &json.to_string())
}

#[test]
fn the_index_equals_a_naive_matcher() {
    let mut matched = 0;
    for seed in 0..TABLES {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut routes = table(&mut rng);
        let mut router = Router::default();
        // In any order, and with some that leave again.
        let (mut order, gone) = (routes.clone(), table(&mut rng));
        rand::seq::SliceRandom::shuffle(order.as_mut_slice(), &mut rng);
        let gone: Vec<_> =
            gone.into_iter().map(|plain| Plain { id: format!("x{}", plain.id), ..plain }).collect();
        gone.iter().chain(&order).for_each(|plain| insert(&mut router, plain));
        for plain in &gone {
            let (key, route) = parsed(plain);
            router.remove(&key, &route, &route.hosts);
        }
        routes.sort_by(|left, right| left.id.cmp(&right.id));
        for _ in 0..REQUESTS {
            let request = request(&mut rng);
            let method = Method::from_bytes(request.method.as_bytes()).unwrap();
            let facts = RequestFacts {
                host: Some(&request.host),
                path: &request.path,
                method: &method,
                remote: request.peer.parse().unwrap(),
            };
            let expected = naive(&routes, &request);
            matched += usize::from(expected.is_some());
            assert_eq!(
                found(&router, &facts),
                expected.unwrap_or_default(),
                "seed {seed} {request:?} {routes:#?}"
            );
        }
    }
    let all = TABLES as usize * REQUESTS;
    assert!(
        matched > all / 5 && matched < all * 9 / 10,
        "{matched} of {all} matched: the tables test too little"
    );
}
