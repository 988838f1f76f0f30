//! Histories of the directories that DeepSpeed, Megatron and torch.distributed leave: steps beside which one configuration lies.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;
use testing::checkpoint_copy::{attnscope, text};
use testing::distributed::{files_of, plain, written};

/// A model of nanoGPT, whose configuration is in no name or shape alone.
fn weights() -> PathBuf {
    testing::root().join("fixtures/formats/homegrown/nanogpt_bias/mine.pth")
}

const SETTINGS: &str = "[set]\nn_heads = 2\n";

/// A training whose steps are in directories of the given names, each with the weights under a name, and with what lies beside them.
fn training(steps: &[&str], file: &str, neighbours: &[&str]) -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    for step in steps {
        let path = directory.path().join(step).join(file);
        fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        fs::copy(weights(), &path).expect("copied");
        for name in neighbours {
            fs::write(path.with_file_name(name), "state").expect("written");
        }
    }
    directory
}

fn ran(words: &[&str]) -> (Option<i32>, String, String) {
    let output = attnscope(words);
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

fn name(path: &Path) -> &str {
    path.to_str().expect("a path")
}

#[test]
fn steps_of_deepspeed_and_megatron_are_read_by_what_lies_beside_them() {
    let optimiser = [
        "zero_pp_rank_0_mp_rank_00_optim_states.pt",
        "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt",
    ];
    let of_deepspeed = training(
        &["global_step100", "global_step200"],
        "mp_rank_00_model_states.pt",
        &optimiser,
    );
    fs::write(of_deepspeed.path().join("latest"), "global_step200").expect("written");
    let of_megatron = training(
        &["iter_0000100", "iter_0000200"],
        "mp_rank_00/model_optim_rng.pt",
        &["distrib_optim.pt"],
    );
    let newest = of_megatron.path().join("latest_checkpointed_iteration.txt");
    fs::write(newest, "200").expect("written");
    for (training, step) in [
        (&of_deepspeed, "global_step100"),
        (&of_megatron, "iter_0000100"),
    ] {
        let run = training.path();
        let one = run.join(step);
        let words = [
            "history",
            name(run),
            "--tokens",
            "1,2,3",
            "--no-cache",
            "--format",
            "json",
        ];
        let alone = ["report", name(&one), "--tokens", "1,2,3"];
        // Without what describes them, it is asked for.
        let (code, _, said) = ran(&alone);
        assert!(code == Some(2) && said.contains("n_heads"), "{said}");
        fs::write(run.join("attnscope.toml"), SETTINGS).expect("written");
        let (code, _, said) = ran(&alone);
        assert_eq!(code, Some(0), "{said}");
        let (code, document, said) = ran(&words);
        assert_eq!(code, Some(0), "{said}");
        let document: Value = serde_json::from_str(&document).expect("JSON");
        let steps = document["steps"].as_array().expect("steps");
        let steps: Vec<u64> = steps
            .iter()
            .filter_map(|step| step["step"].as_u64())
            .collect();
        assert_eq!(steps, [100, 200], "{document}");
        // A tokenizer beside the steps is theirs.
        let (code, _, said) = ran(&["report", name(&one), "--text", "a"]);
        assert!(code == Some(2) && said.contains("tokenizer"), "{said}");
        let healthy = testing::root().join("fixtures/healthy/tokenizer.json");
        fs::copy(healthy, run.join("tokenizer.json")).expect("copied");
        let (code, printed, said) = ran(&["tokens", name(&one), "--text", "the king"]);
        assert_eq!(code, Some(0), "{said}");
        assert!(printed.contains("king"), "{printed}");
        // A step's own settings win.
        let own = match step {
            "global_step100" => one.join("attnscope.toml"),
            _ => one.join("mp_rank_00/attnscope.toml"),
        };
        fs::write(&own, "[set]\nn_heads = 4\n").expect("written");
        let (_, document, said) = ran(&alone);
        let document: Value =
            serde_json::from_str(&document).unwrap_or_else(|e| panic!("{e}: {said}"));
        assert_eq!(document["model"]["n_heads"], 4);
    }
    // A directory of another name does not look above itself.
    let other = training(&["final"], "mp_rank_00_model_states.pt", &[]);
    fs::write(other.path().join("attnscope.toml"), SETTINGS).expect("written");
    let (code, _, said) = ran(&[
        "report",
        name(&other.path().join("final")),
        "--tokens",
        "1,2,3",
    ]);
    assert!(code == Some(2) && said.contains("n_heads"), "{said}");
}

#[test]
fn a_configuration_beside_the_steps_is_read_again_when_it_changes() {
    let training = training(&["global_step100"], "mp_rank_00_model_states.pt", &[]);
    let cache = tempfile::tempdir().expect("a directory");
    let statistics = |n_heads: usize| {
        let settings = format!("[set]\nn_heads = {n_heads}\n");
        fs::write(training.path().join("attnscope.toml"), settings).expect("written");
        let output = std::process::Command::new(testing::program())
            .args([
                "history",
                name(training.path()),
                "--tokens",
                "1,2,3,4",
                "--format",
                "csv",
            ])
            .env("XDG_CACHE_HOME", cache.path())
            .output()
            .expect("runs");
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let two = statistics(2);
    let four = statistics(4);
    assert_ne!(two.lines().count(), four.lines().count());
    assert_eq!(two, statistics(2));
}

/// Ids of the plain model of the distributed checkpoints.
const IDS: [&str; 2] = ["--tokens", "1,2,3,4,5,6,7,8,1,2,3"];

#[test]
fn a_training_of_distributed_checkpoints_has_a_history() {
    let run = written("fsdp4", &["step-100", "step-200"]);
    let history = |words: &[&str]| {
        let all = [
            &["history", name(run.path())][..],
            &IDS,
            &["--no-cache"],
            words,
        ]
        .concat();
        ran(&all)
    };
    let (code, document, said) = history(&["--format", "json"]);
    assert_eq!(code, Some(0), "{said}");
    let document: Value = serde_json::from_str(&document).expect("JSON");
    let steps = |document: &Value| -> Vec<(u64, String)> {
        let steps = document["steps"].as_array().expect("steps").iter();
        let step = |step: &Value| {
            let state = step["state"].as_str().unwrap_or_default();
            (step["step"].as_u64().expect("a step"), state.to_owned())
        };
        steps.map(step).collect()
    };
    let numbers: Vec<u64> = steps(&document).iter().map(|(step, _)| *step).collect();
    assert_eq!(numbers, [100, 200], "{document}");
    // Parts come first, and the index last: until then a step is not complete.
    let third = run.path().join("step-300");
    fs::create_dir(&third).expect("made");
    let files = files_of("fsdp4");
    for (file, bytes) in files.iter().filter(|(file, _)| *file != ".metadata") {
        fs::write(third.join(file), bytes).expect("written");
    }
    let (_, document, said) = history(&["--format", "json"]);
    let both = format!("{document}{said}");
    assert!(both.contains(".metadata is not there yet"), "{both}");
    // A copy may bring the index before the parts.
    fs::write(third.join(".metadata"), &files[".metadata"]).expect("written");
    fs::write(third.join("__1_0.distcp"), &files["__1_0.distcp"][..999]).expect("written");
    let (_, document, said) = history(&["--format", "json"]);
    let both = format!("{document}{said}");
    assert!(both.contains("__1_0.distcp is not written whole"), "{both}");
    fs::write(third.join("__1_0.distcp"), &files["__1_0.distcp"]).expect("written");
    let (code, document, said) = history(&["--format", "json"]);
    assert_eq!(code, Some(0), "{said}");
    let document: Value = serde_json::from_str(&document).expect("JSON");
    assert_eq!(steps(&document).len(), 3, "{document}");
}

#[test]
fn distributed_checkpoints_are_checked_compared_and_listed_like_others() {
    let run = written("mesh", &["last"]);
    let last = run.path().join("last");
    let plain = plain();
    let plain = name(&plain);
    for command in ["report", "check"] {
        let words = |path| [&[command, path][..], &IDS].concat();
        let (code, printed, said) = ran(&words(name(&last)));
        let (plain_code, plain_printed, _) = ran(&words(plain));
        assert!(matches!(code, Some(0 | 1)) && code == plain_code, "{said}");
        let numbers = |text: &str| -> Vec<String> {
            let words = text.split_whitespace();
            let words = words.filter(|word| word.contains('.') && word.parse::<f64>().is_ok());
            words.map(str::to_owned).collect()
        };
        assert_eq!(numbers(&printed), numbers(&plain_printed));
    }
    let (code, printed, said) = ran(&[&["diff", name(&last), plain][..], &IDS].concat());
    assert_eq!(code, Some(0), "{printed}{said}");
    let (code, printed, said) = ran(&["tensors", name(&last)]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        printed.contains("model.layers.0.self_attn.q_proj.weight"),
        "{printed}"
    );
    assert!(!printed.contains("exp_avg"), "{printed}");
    // The step is in the checkpoint where no name has it.
    let whole = written("whole", &["last"]);
    let step = attnscope_report::record::step_of(&whole.path().join("last"), "last");
    assert_eq!(step, Some(100));
}

#[test]
fn steps_of_accelerate_are_its_directories_of_weights() {
    let names = [
        "checkpoint-5/pytorch_model_fsdp_0",
        "checkpoint-10/pytorch_model_fsdp_0",
    ];
    let run = written("columns", &names);
    for step in ["checkpoint-5", "checkpoint-10"] {
        let optimiser = run.path().join(step).join("optimizer_0");
        fs::create_dir(&optimiser).expect("made");
        fs::write(optimiser.join("__0_0.distcp"), "state").expect("written");
        fs::write(run.path().join(step).join("scheduler.pt"), "state").expect("written");
    }
    let words = [
        "history",
        name(run.path()),
        "--no-cache",
        "--format",
        "json",
    ];
    let (code, document, said) = ran(&[&words[..], &IDS].concat());
    assert_eq!(code, Some(0), "{said}");
    let document: Value = serde_json::from_str(&document).expect("JSON");
    assert_eq!(
        document["steps"].as_array().map(Vec::len),
        Some(2),
        "{document}"
    );
}
