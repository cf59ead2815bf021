//! The matrix of releases and faults in its short form: two cells of it on the etcd at hand, by the same code.

use clap::Parser;
use headwater_tests::etcd::{dependable, etcd_binary};
use headwater_tests::matrix::binaries::{Found, Release};
use headwater_tests::matrix::{Arguments, runner};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_cells_of_the_matrix_pass_and_are_not_run_again() {
    if !dependable("two_cells_of_the_matrix_pass_and_are_not_run_again") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (state, page) = (folder.path().join("runs.jsonl"), folder.path().join("page.md"));
    let found = Some(Found::at(etcd_binary()));
    let releases = [Release { minor: "at hand".to_owned(), found }];
    let mut arguments = Arguments::parse_from([
        "matrix",
        "--members",
        "single",
        "--faults",
        "killed,half-open",
        "--runs",
        "1",
    ]);
    arguments.state.clone_from(&state);
    arguments.write = Some(page.clone());
    let passed = runner::run_on(&releases, &arguments).await.unwrap();
    let text = std::fs::read_to_string(&state).unwrap();
    assert!(passed && text.lines().count() == 2, "{text}");
    let shown = std::fs::read_to_string(&page).unwrap();
    assert_eq!(shown.matches("| 1/1, ").count(), 2, "{shown}");

    runner::run_on(&releases, &arguments).await.unwrap();
    assert_eq!(std::fs::read_to_string(&state).unwrap(), text, "a finished run was done again");
}
