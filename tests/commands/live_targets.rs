//! Live targets: code that a person names, run by Python without any package, and a process that serves a socket.

use std::process::Command;

use serde_json::Value;
use testing::checkpoint_copy::{attnscope, text};
use testing::live_stub::Stub;

/// The file of a target.
const ARRAYS: &str = "fixtures/live/arrays.py";

/// Runs a command on `NAME` of the file of plain Python; `None` without Python.
fn run(arguments: &[&str], name: &str) -> Option<(i32, String, String)> {
    Command::new("python3").arg("-V").output().ok()?;
    let target = format!("{ARRAYS}:{name}");
    let arguments: Vec<&str> = arguments.iter().copied().chain([target.as_str()]).collect();
    let output = attnscope(&arguments);
    let code = output.status.code().expect("an exit code");
    Some((code, text(&output.stdout), text(&output.stderr)))
}

#[test]
fn a_function_that_computes_attention_is_judged_and_reported() {
    let Some((code, out, _)) = run(&["check", "--format", "json"], "words") else {
        return;
    };
    assert_eq!(code, 0, "{out}");
    let verdict: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(verdict["targets"][0]["target"], format!("{ARRAYS}:words"));
    let wrong = run(&["check", "--format", "json"], "words(axis='queries')");
    let (code, out, _) = wrong.expect("Python");
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("\"wrong-axis\""), "{out}");
    let (_, out, _) = run(
        &["report", "--format", "csv", "--text", "a bee sees"],
        "words",
    )
    .expect("Python");
    assert!(
        out.lines()
            .nth(1)
            .is_some_and(|row| row.contains(",prompt,3,")),
        "{out}"
    );
    let (_, out, _) = run(&["heads"], "words").expect("Python");
    assert_eq!(out.lines().count(), 2, "{out}");
}

#[test]
fn what_goes_wrong_in_a_persons_code_is_one_line_with_their_own_line() {
    let told = |name: &str| run(&["check"], name);
    let Some((code, out, error)) = told("raises") else {
        return;
    };
    assert_eq!((code, out.as_str()), (2, ""));
    assert_eq!(
        error,
        format!("attnscope: {ARRAYS}:raises: KeyError: 'b' ({ARRAYS}:29: return values[\"b\"])\n")
    );
    for (name, words) in [
        ("leaves", "SystemExit: 3"),
        ("dies", "ended by signal 6: last words"),
        ("missing", "arrays.py has no missing; it has softmax, words"),
        ("words(text=open('x'))", "with plain literals"),
        ("words(nothing=1)", "unexpected keyword argument 'nothing'"),
        (
            "gives_a_number",
            "expected a torch.nn.Module, (model, tokenizer)",
        ),
    ] {
        let (code, out, error) = told(name).expect("Python");
        assert_eq!((code, out.as_str()), (2, ""), "{name}: {error}");
        assert!(error.contains(words), "{name}: {error}");
        assert_eq!(error.lines().count(), 1, "{name}: {error}");
    }
    let output = attnscope(&["check", "no/such.py:load"]);
    assert_eq!(
        text(&output.stderr),
        "attnscope: no/such.py: there is no such Python file\n"
    );
}

#[test]
fn a_child_that_the_code_forks_answers_nothing() {
    if let Some((code, _, error)) = run(&["check"], "forks") {
        assert_eq!(code, 0, "{error}");
    }
}

#[test]
fn commands_that_run_weights_themselves_say_so() {
    let target = format!("{ARRAYS}:words");
    for arguments in [
        vec!["tensors", &target],
        vec!["tokens", &target, "some text"],
        vec!["sweep", &target, "some text", "--at", "L0H0"],
        vec!["verify", &target, "some text"],
    ] {
        let error = text(&attnscope(&arguments).stderr);
        assert!(error.contains("reads weights itself"), "{error}");
    }
}

#[test]
fn a_process_on_a_socket_is_a_target_like_any_other() {
    let Some(stub) = Stub::start("stub.py") else {
        return;
    };
    let output = attnscope(&["check", &stub.target, "--tokens", "5,6,7,8"]);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{out}");
    assert!(out.contains("note: not probed: a stub has none"), "{out}");
    let directory = tempfile::tempdir().expect("a directory");
    let trace = directory.path().join("trace.safetensors");
    let path = trace.to_string_lossy().into_owned();
    let output = attnscope(&[
        "trace",
        &stub.target,
        "--tokens",
        "5,6,7,8",
        "--output",
        &path,
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let output = attnscope(&["diff", &path, &stub.target]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(
        text(&output.stdout).starts_with("the same"),
        "{}",
        text(&output.stdout)
    );
    let output = attnscope(&["report", &stub.target, "--text", "fail"]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        error.ends_with(": ValueError: no (model.py:7: x = 1 / 0)\n"),
        "{error}"
    );
}
