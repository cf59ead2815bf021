use super::*;

fn line(uri: &str) -> Box<Line> {
    Box::new(Line {
        time: UNIX_EPOCH,
        client: "192.0.2.1:1".parse().unwrap(),
        scheme: "http",
        protocol: "HTTP/1.1",
        method: "GET".to_owned(),
        host: "a.test".to_owned(),
        uri: uri.to_owned(),
        status: 200,
        bytes_in: 0,
        bytes_out: 5,
        latency_ms: 1.5,
        complete: true,
        error: None,
        reason: None,
        upstream: vec![],
        route: Some("1".into()),
        service: None,
        request_id: None,
        user_agent: None,
        version: None,
    })
}

fn to_file(path: &Path, queue: usize) -> (AccessLog, Writer, Counter) {
    let dropped = Counter::default();
    let config = AccessLogConfig { to: AccessLogTarget::File(path.to_owned()), queue };
    let (log, writer) = open(&config, dropped.clone()).unwrap();
    (log, writer.unwrap(), dropped)
}

fn uris(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path)
        .unwrap()
        .lines()
        .map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            line["uri"].as_str().unwrap().to_owned()
        })
        .collect()
}

#[tokio::test]
async fn lines_beyond_the_queue_are_dropped_and_counted_and_the_rest_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let (log, writer, dropped) = to_file(&path, 2);
    for uri in ["/1", "/2", "/3", "/4"] {
        log.write(line(uri));
    }
    assert_eq!(dropped.get(), 2);
    drop(log);
    writer.run(CancellationToken::new()).await;
    assert_eq!(uris(&path), ["/1", "/2"]);
}

#[tokio::test]
async fn at_the_end_what_is_queued_is_still_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let (log, writer, dropped) = to_file(&path, 1000);
    for number in 0..1000 {
        log.write(line(&format!("/{number}")));
    }
    let end = CancellationToken::new();
    end.cancel();
    writer.run(end).await;
    assert_eq!(uris(&path).len(), 1000);
    assert_eq!(dropped.get(), 0);
    log.write(line("/late"));
    assert_eq!(dropped.get(), 1, "a line after the end is counted");
}

#[tokio::test]
async fn a_moved_file_is_left_alone_and_a_new_one_begun() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let moved = folder.path().join("access.log.1");
    let (_log, mut writer, _) = to_file(&path, 10);
    writer.write(&mut vec![*line("/before")]).await;
    std::fs::rename(&path, &moved).unwrap();
    writer.look().await;
    writer.write(&mut vec![*line("/after")]).await;
    assert_eq!(uris(&moved), ["/before"]);
    assert_eq!(uris(&path), ["/after"]);
}

#[test]
fn a_file_that_cannot_be_opened_is_an_error_at_once() {
    let config = AccessLogConfig { to: AccessLogTarget::File("/nowhere/at/all/access.log".into()), queue: 1 };
    assert!(open(&config, Counter::default()).is_err());
}

#[test]
fn times_are_written_as_utc() {
    for (seconds, expected) in [
        (0, "1970-01-01T00:00:00.000Z"),
        (951_782_400, "2000-02-29T00:00:00.000Z"),
        (1_709_251_199, "2024-02-29T23:59:59.000Z"),
        (1_735_689_600, "2025-01-01T00:00:00.000Z"),
        (4_107_542_399, "2100-02-28T23:59:59.000Z"),
    ] {
        assert_eq!(format_utc(UNIX_EPOCH + Duration::from_secs(seconds)), expected);
    }
}
