//! `--device`: what is not there is refused in one line, and `auto` falls back with one.

use testing::checkpoint_copy::{Copy, attnscope, text};
#[cfg(not(feature = "cuda"))]
use testing::refusal::assert_says;
use testing::refusal::{PROMPT, refused_report};

fn report(copy: &Copy, device: &str) -> (Vec<u8>, String) {
    let path = copy.path().to_str().expect("a path");
    let all = [&["report", path, "--device", device], PROMPT].concat();
    let output = attnscope(&all);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    (output.stdout, said)
}

#[cfg(not(feature = "cuda"))]
#[test]
fn without_cuda_a_build_says_how_to_make_one_that_has_it() {
    let copy = Copy::of("gpt2");
    for device in ["cuda", "cuda:0", "cuda:7"] {
        let said = refused_report(&copy, &[PROMPT, &["--device", device]].concat());
        assert_says(&said, &[&format!("--device {device}"), "--features cuda"]);
    }
}

#[test]
fn a_device_without_a_name_is_refused() {
    let copy = Copy::of("gpt2");
    for device in ["cuda:", "cuda:x", "cuda:-1", "CUDA", "cpu:0", "metal"] {
        refused_report(&copy, &[PROMPT, &["--device", device]].concat());
    }
}

#[cfg(not(feature = "cuda"))]
#[test]
fn auto_says_in_one_line_that_it_is_the_cpu_and_gives_the_same_bytes() {
    let copy = Copy::of("gpt2");
    let (expected, without) = report(&copy, "cpu");
    let (found, said) = report(&copy, "auto");
    assert_eq!(found, expected);
    let more: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("--device auto"))
        .collect();
    assert_eq!(more.len(), 1, "{said}");
    assert!(more[0].contains("CPU"), "{said}");
    let n_lines = |text: &str| text.lines().count();
    assert_eq!(n_lines(&said), n_lines(&without) + 1, "{said}");
}
