use super::*;
use proptest::prelude::*;

fn observe(stream: &[u8], step: usize) -> Option<Refused> {
    let mut framing = Framing::new(1024);
    stream.chunks(step.max(1)).find_map(|part| framing.observe(part))
}

fn refused(stream: &str) -> Option<Refused> {
    let whole = observe(stream.as_bytes(), usize::MAX);
    for step in 1..8 {
        assert_eq!(
            observe(stream.as_bytes(), step),
            whole,
            "the answer must not depend on how the bytes arrive"
        );
    }
    whole
}

fn first(why: Ambiguity) -> Option<Refused> {
    Some(Refused { request: 0, why })
}

#[test]
fn plain_requests_pass() {
    for stream in [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nT: 1\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\nHost: a\n\nGET / HTTP/1.1\n\n",
    ] {
        assert_eq!(refused(stream), None, "{stream:?}");
    }
}

#[test]
fn length_and_encoding_is_refused_in_either_order() {
    for head in
        ["Content-Length: 3\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\ncontent-length: 3"]
    {
        assert_eq!(
            refused(&format!("POST / HTTP/1.1\r\n{head}\r\n\r\n")),
            first(Ambiguity::LengthAndEncoding)
        );
    }
}

#[test]
fn two_lengths_are_refused_even_when_equal() {
    assert_eq!(
        refused("POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc"),
        first(Ambiguity::LengthTwice)
    );
    assert_eq!(refused("POST / HTTP/1.1\r\nContent-Length: 3, 3\r\n\r\nabc"), first(Ambiguity::Length));
    assert_eq!(refused("POST / HTTP/1.1\r\nContent-Length: +3\r\n\r\nabc"), first(Ambiguity::Length));
}

#[test]
fn encodings_other_than_chunked_are_refused() {
    for head in [
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: identity",
    ] {
        assert_eq!(refused(&format!("POST / HTTP/1.1\r\n{head}\r\n\r\n")), first(Ambiguity::Encoding));
    }
}

#[test]
fn the_number_of_the_refused_request_is_named() {
    assert_eq!(
        refused(
            "GET / HTTP/1.1\r\n\r\nPOST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n\r\nPOST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"
        ),
        Some(Refused { request: 2, why: Ambiguity::LengthTwice })
    );
}

#[test]
fn after_a_bad_chunk_the_next_request_is_refused() {
    for body in ["zz\r\n", "3\r\nabcd\r\n", "\r\n", "-1\r\n"] {
        assert_eq!(
            refused(&format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{body}")),
            Some(Refused { request: 1, why: Ambiguity::Length }),
            "{body:?}"
        );
    }
}

#[test]
fn http2_is_left_alone() {
    assert_eq!(
        refused("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n"),
        None
    );
}

proptest! {
    #[test]
    fn never_panics_and_never_depends_on_the_cut(
        stream in "(GET / HTTP/1.1|Content-Length: [0-9]{1,3}|Transfer-Encoding: chunked|[0-9a-f]{1,3}|\r\n|\n|x){0,30}",
        step in 1usize..40,
    ) {
        prop_assert_eq!(observe(stream.as_bytes(), step), observe(stream.as_bytes(), usize::MAX));
    }
}
