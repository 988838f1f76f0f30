//! The channel against a stub in plain Python, which knows no framework.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Code, LiveSession, LiveTarget, Request};

/// A stub that serves one connection on a socket.
struct Stub {
    child: Child,
    _directory: tempfile::TempDir,
    target: LiveTarget,
}

impl Stub {
    fn start() -> Option<Self> {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("socket");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/live/stub.py");
        let child = Command::new("python3")
            .arg(script)
            .arg(&socket)
            .stdout(Stdio::null())
            .spawn()
            .ok()?;
        let until = Instant::now() + Duration::from_secs(20);
        while !socket.exists() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(Self {
            child,
            _directory: directory,
            target: LiveTarget::Socket(socket),
        })
    }

    fn session(&self) -> LiveSession {
        LiveSession::new(self.target.clone(), None, Code::default()).expect("a session")
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

const NEVER: fn() -> bool = || false;

#[test]
fn a_stub_in_plain_python_says_what_it_is_and_gives_tokens_and_a_trace() {
    let Some(stub) = Stub::start() else { return };
    let mut session = stub.session();
    let about = session.about(&NEVER).expect("ready").clone();
    assert_eq!((about.model.as_str(), about.parameters), ("Stub", 12));
    assert_eq!(about.lacks.reload.as_deref(), Some("a stub has no file"));
    assert_eq!(about.words(), "Stub · 0.0k parameters · none 1");
    let (ids, labels) = session.tokens("ab", &NEVER).expect("tokens");
    assert_eq!(
        (ids, labels),
        (vec![97, 98], vec!["a".to_owned(), "b".to_owned()])
    );
    let mut parts = Vec::new();
    let request = Request {
        ids: Some(vec![5, 6, 7]),
        ..Request::default()
    };
    let mut told = |what: &str, n_done: usize, n: usize| parts.push((what.to_owned(), n_done, n));
    let done = session.run(&request, &mut told, &NEVER).expect("a run");
    assert_eq!(parts, [("layers".to_owned(), 1, 1)]);
    let bytes = std::fs::read(&done.path).expect("the trace");
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains("blocks.0.attn.pattern"), "{text}");
}

#[test]
fn what_fails_over_there_is_one_line_with_the_place_and_the_channel_goes_on() {
    let Some(stub) = Stub::start() else { return };
    let mut session = stub.session();
    let text = |text: &str| Request {
        text: Some(text.to_owned()),
        ..Request::default()
    };
    let error = session
        .run(&text("fail"), &mut |_, _, _| {}, &NEVER)
        .expect_err("it fails");
    let words = error.to_string();
    assert!(
        words.ends_with(": ValueError: no (model.py:7: x = 1 / 0)"),
        "{words}"
    );
    session
        .run(&text("go on"), &mut |_, _, _| {}, &NEVER)
        .expect("a run");
    let error = session
        .run(&text("leave"), &mut |_, _, _| {}, &NEVER)
        .expect_err("it is gone");
    assert!(
        error
            .to_string()
            .ends_with("the process that holds the model is gone"),
        "{error}"
    );
}

#[test]
fn a_trace_that_is_left_as_a_file_is_taken_only_from_the_directory_for_it() {
    let Some(stub) = Stub::start() else { return };
    let mut session = stub.session();
    let mut run = |text: &str| {
        let request = Request {
            text: Some(text.to_owned()),
            ..Request::default()
        };
        session.run(&request, &mut |_, _, _| {}, &NEVER)
    };
    let sent = std::fs::read(run("sent").expect("a run").path).expect("a trace");
    let left = run("left").expect("a run").path;
    let bytes = std::fs::read(&left).expect("a trace");
    assert_eq!(bytes.len(), sent.len());
    assert!(String::from_utf8_lossy(&bytes).contains("blocks.0.attn.pattern"));
    let error = run("outside").expect_err("refused").to_string();
    assert!(
        error.contains("left.safetensors") && error.contains("that is not in"),
        "{error}"
    );
    session.keep_only(&[]);
    assert!(!left.exists(), "a trace that is not shown is removed");
}

#[test]
fn a_run_that_is_stopped_ends_soon_and_its_late_answer_is_not_taken_for_another() {
    let Some(stub) = Stub::start() else { return };
    let mut session = stub.session();
    session.about(&NEVER).expect("ready");
    let begun = Instant::now();
    let stops = move || begun.elapsed() > Duration::from_millis(100);
    let request = Request {
        text: Some("wait".to_owned()),
        ..Request::default()
    };
    let error = session
        .run(&request, &mut |_, _, _| {}, &stops)
        .expect_err("stopped");
    assert_eq!(error.to_string(), "cancelled");
    assert!(begun.elapsed() < Duration::from_secs(4));
    let (ids, _) = session.tokens("z", &NEVER).expect("tokens");
    assert_eq!(ids, [122]);
}

#[test]
fn names_of_python_files_and_sockets_are_live_targets_and_nothing_else_is() {
    let parsed = |text: &str| LiveTarget::parse(Path::new(text)).map(|target| target.to_string());
    for live in [
        "train.py:load",
        "a/b.py:Model(n_layers=2)",
        "live:/tmp/x.sock",
    ] {
        assert_eq!(parsed(live).as_deref(), Some(live));
    }
    for other in [
        "train.py",
        "train.py:",
        "model.safetensors",
        "a:b",
        "live:",
        "x.py:3",
    ] {
        assert_eq!(parsed(other), None, "{other}");
    }
    let target = LiveTarget::parse(Path::new("a/b.py:load(x=1)")).expect("a target");
    assert_eq!(target.file().as_deref(), Some(Path::new("a/b.py")));
}

#[test]
fn a_python_that_is_not_there_and_a_file_that_is_missing_are_one_line() {
    let missing = LiveTarget::parse(Path::new("no/such/file.py:load")).expect("a target");
    let error = LiveSession::new(missing, None, Code::default())
        .expect("a session")
        .about(&NEVER)
        .expect_err("no file")
        .to_string();
    assert_eq!(error, "no/such/file.py: there is no such Python file");
    let here = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../fixtures/live/stub.py:load"
    );
    let target = LiveTarget::parse(Path::new(here)).expect("a target");
    let mut session = LiveSession::new(target, Some(Path::new("no-such-python")), Code::default())
        .expect("a session");
    let error = session.about(&NEVER).expect_err("no python").to_string();
    assert!(
        error.starts_with("no-such-python cannot be started"),
        "{error}"
    );
}
