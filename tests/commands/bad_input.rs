//! Prompts and flags that cannot be run: one line that says what was expected and what was found, and exit code 2.

use std::path::Path;

use serde_json::{Value, json};
use testing::checkpoint_copy::{Copy, attnscope, text};
use testing::refusal::{PROMPT, assert_says, misused, refused, refused_report};

#[test]
fn a_token_outside_the_vocabulary_is_named_with_its_place() {
    let copy = Copy::of("gpt2");
    let said = refused_report(&copy, &["--tokens", "5,257,2"]);
    assert_says(&said, &["257", "position 1", "0..256"]);
    refused_report(&copy, &["--tokens", "4294967295"]);
}

#[test]
fn an_empty_prompt_is_refused() {
    let copy = Copy::of("gpt2");
    assert_says(
        &misused("report", copy.path(), &["--tokens", ""]),
        &["--tokens"],
    );
    for not_ids in ["a,b", "-3", "1,,2", "4294967296", "1.5"] {
        let argument = format!("--tokens={not_ids}");
        assert_says(&misused("report", copy.path(), &[&argument]), &["--tokens"]);
    }
}

#[test]
fn a_text_without_a_tokenizer_is_refused() {
    let copy = Copy::of("gpt2");
    for arguments in [["--text", "hello"], ["--text", ""]] {
        let said = refused_report(&copy, &arguments);
        assert_says(&said, &["tokenizer.json", "--tokens"]);
    }
    copy.write("prompt.txt", "hello");
    let file = copy.file("prompt.txt");
    let said = refused_report(&copy, &["--text-file", file.to_str().expect("a path")]);
    assert_says(&said, &["tokenizer.json"]);
}

#[test]
fn a_text_file_that_is_missing_or_no_text_is_named() {
    let copy = Copy::of("gpt2");
    copy.write("prompt.txt", [0xff, 0x00, 0xfe]);
    for (name, why) in [
        ("prompt.txt", "cannot be read as text"),
        ("absent.txt", "cannot be opened"),
    ] {
        let file = copy.file(name);
        let said = refused_report(&copy, &["--text-file", file.to_str().expect("a path")]);
        assert_says(&said, &[name, why]);
    }
}

#[test]
fn a_prompt_longer_than_the_positions_is_refused_unless_it_may_be_cut() {
    let copy = Copy::of("gpt2");
    let ids = vec!["7"; 70].join(",");
    let said = refused_report(&copy, &["--tokens", &ids]);
    assert_says(&said, &["70 tokens", "64 positions", "--truncate"]);
    let output = attnscope(&[
        "report",
        copy.path().to_str().expect("a path"),
        "--tokens",
        &ids,
        "--truncate",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["prompts"][0]["tokens"], json!(vec![7; 64]));
}

#[test]
fn a_mask_that_does_not_fit_is_refused() {
    let copy = Copy::of("gpt2");
    let said = refused_report(&copy, &["--tokens", "5,9,2", "--attention-mask", "1,1"]);
    assert_says(&said, &["attention mask", "expected 3", "found 2"]);
    let said = refused_report(&copy, &["--tokens", "5,9,2", "--attention-mask", "0,0,0"]);
    assert_says(&said, &["attention mask", "only padding"]);
    let arguments = ["--tokens", "5,9", "--attention-mask", "1,2"];
    assert_says(
        &misused("report", copy.path(), &arguments),
        &["--attention-mask", "2"],
    );
}

#[test]
fn a_mask_whose_tokens_were_all_cut_off_is_refused() {
    let copy = Copy::of("gpt2");
    let ids = vec!["7"; 70].join(",");
    let mask: Vec<&str> = (0..70).map(|i| if i < 64 { "0" } else { "1" }).collect();
    let mask = mask.join(",");
    let said = refused_report(
        &copy,
        &["--tokens", &ids, "--attention-mask", &mask, "--truncate"],
    );
    assert_says(&said, &["only padding"]);
}

#[test]
fn an_output_that_cannot_be_written_is_refused_before_the_run() {
    let copy = Copy::of("gpt2");
    let below_a_file = copy.file("config.json").join("report.json");
    let places = [
        (copy.output("no/such/report.json"), "no such directory"),
        (copy.output(""), "found a directory"),
        (below_a_file, "its parent is not a directory"),
        // A file system that refuses even its owner.
        #[cfg(target_os = "linux")]
        (
            Path::new("/sys/attnscope-report").to_path_buf(),
            "cannot be written",
        ),
    ];
    for (place, why) in places {
        let place = place.to_str().expect("a path");
        for command in ["report", "trace"] {
            if command == "report" && why == "found a directory" {
                // A report in a directory has a name of its own.
                continue;
            }
            let arguments = [PROMPT, &["--output", place]].concat();
            assert_says(&refused(command, copy.path(), &arguments), &[place, why]);
        }
    }
    assert_eq!(copy.n_outputs(), 0);
}

#[test]
fn what_a_run_reads_is_never_written_over() {
    let copy = Copy::of("gpt2");
    let prompts = copy.output("prompts.jsonl");
    std::fs::write(&prompts, "{\"id\": \"a\", \"tokens\": [5, 9]}\n").expect("a file");
    let named = |path: &Path| path.to_str().expect("a path").to_owned();
    for file in ["config.json", "model.safetensors"] {
        let file = copy.file(file);
        let before = std::fs::read(&file).expect("a file");
        let target = named(&file);
        for command in ["report", "trace"] {
            let arguments = [PROMPT, &["--output", &target]].concat();
            assert_says(
                &refused(command, copy.path(), &arguments),
                &["this run reads"],
            );
        }
        assert_eq!(std::fs::read(&file).expect("a file"), before);
    }
    let target = named(&prompts);
    let arguments = ["--inputs", &target, "--output", &target];
    assert_says(
        &refused("report", copy.path(), &arguments),
        &["this run reads"],
    );
}

#[test]
fn a_model_of_one_stack_has_no_other_layers() {
    let copy = Copy::of("gpt2");
    let target = copy.output("trace.safetensors");
    let target = target.to_str().expect("a path");
    let arguments = [PROMPT, &["--layers", "encoder.0", "--output", target]].concat();
    assert_says(
        &refused("trace", copy.path(), &arguments),
        &["--layers", "only stack", "encoder layers"],
    );
    assert_eq!(copy.n_outputs(), 0);
}

#[test]
fn an_unknown_hook_is_named_with_the_known_ones() {
    let copy = Copy::of("gpt2");
    let output = copy.output("trace.safetensors");
    let output = output.to_str().expect("a path");
    let arguments = [
        "--tokens",
        "1",
        "--hooks",
        "pattern,attention",
        "--output",
        output,
    ];
    let said = misused("trace", copy.path(), &arguments);
    assert_says(
        &said,
        &["unknown hook attention", "pattern", "resid_post", "logits"],
    );
    assert_eq!(copy.n_outputs(), 0);
}

#[test]
fn a_layer_or_head_that_does_not_exist_is_refused() {
    let copy = Copy::of("gpt2");
    let output = copy.output("trace.safetensors");
    let output = output.to_str().expect("a path");
    for (flag, value, parts) in [
        ("--layers", "0,3", ["layer 3", "0..2"]),
        ("--heads", "2-4", ["head 4", "0..3"]),
    ] {
        let arguments = ["--tokens", "1,2", flag, value, "--output", output];
        assert_says(&refused("trace", copy.path(), &arguments), &parts);
    }
    let arguments = ["--tokens", "1,2", "--layers", "2-0", "--output", output];
    assert_says(
        &misused("trace", copy.path(), &arguments),
        &["--layers", "2-0"],
    );
    assert_eq!(copy.n_outputs(), 0);
}

#[test]
fn a_trace_to_standard_output_is_refused() {
    let copy = Copy::of("gpt2");
    let arguments = [PROMPT, &["--output", "-"]].concat();
    assert_says(
        &refused("trace", copy.path(), &arguments),
        &["--output -", "expected a file"],
    );
}

#[test]
fn a_device_that_this_build_lacks_is_refused() {
    let copy = Copy::of("gpt2");
    for device in ["cuda", "cuda:1", "tpu", ""] {
        let said = refused_report(&copy, &[PROMPT, &["--device", device]].concat());
        assert_says(&said, &[&format!("--device {device}"), "expected", "cpu"]);
    }
}

#[test]
fn an_absurd_number_of_threads_is_refused() {
    let copy = Copy::of("gpt2");
    let said = refused_report(&copy, &[PROMPT, &["--threads", "5000"]].concat());
    assert_says(&said, &["--threads 5000", "expected"]);
}

#[test]
fn two_prompts_at_once_are_refused() {
    let copy = Copy::of("gpt2");
    for two in [
        ["--tokens", "1,2", "--text", "hello"],
        ["--text", "hello", "--text-file", "hello.txt"],
    ] {
        let said = misused("report", copy.path(), &two);
        assert_says(&said, &[two[0], "cannot be used with", two[2]]);
    }
}

#[test]
fn an_unknown_command_gets_the_nearest_one_and_a_wrong_path_is_a_wrong_path() {
    for (word, meant) in [("repotr", "report"), ("chek", "check"), ("swep", "sweep")] {
        let said = text(&attnscope(&[word]).stderr);
        let expected = format!("did you mean attnscope {meant}?");
        assert_says(
            &said,
            &[word, "no such file, directory or command", &expected],
        );
    }
    let said = text(&attnscope(&["quxfrobnicate"]).stderr);
    assert_says(&said, &["attnscope --help lists the commands"]);
    // Without a terminal too: what is missing is the path, not the terminal.
    for path in ["missing/step-50", "./missing.safetensors"] {
        let output = attnscope(&[path]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert_says(&said, &[path, "there is no such file or directory"]);
        assert!(!said.contains("terminal"), "{said}");
    }
}

#[test]
fn a_path_that_does_not_exist_gets_the_nearest_one() {
    let copy = Copy::of("gpt2");
    let slip = copy.path().join("modle.safetensors");
    let slip = slip.to_str().expect("a path");
    let meant = "model.safetensors?)";
    for arguments in [
        vec!["check", slip],
        vec![slip],
        vec!["history", slip],
        vec![
            "tokens",
            copy.path().to_str().expect("a path"),
            "hi",
            "--tokenizer",
            slip,
        ],
        vec![
            "report",
            copy.path().to_str().expect("a path"),
            "--inputs",
            slip,
        ],
    ] {
        let output = attnscope(&arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert_says(&said, &["no such file", "(did you mean ", meant]);
    }
}

#[test]
fn a_path_in_place_of_a_text_is_refused() {
    let copy = Copy::of("gpt2");
    for path in ["runs/step-100", "other.safetensors"] {
        let output = attnscope(&["heads", copy.path().to_str().expect("a path"), path]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert_says(&said, &[path]);
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_sweep_without_a_checkpoint_refuses_flags_of_a_run() {
    for flags in [
        ["--threads", "2"],
        ["--device", "cpu"],
        ["--set", "scale=none"],
    ] {
        let output = attnscope(&[["sweep", "--logits", "1,2,3"].as_slice(), &flags].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert_says(&said, &["required", "<CHECKPOINT>"]);
        assert!(output.stdout.is_empty());
    }
}
