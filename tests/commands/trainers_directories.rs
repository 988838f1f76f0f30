//! Histories of the directories that DeepSpeed, Megatron and torch.distributed leave: steps beside which one configuration lies.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;
use testing::checkpoint_copy::{attnscope, text};

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

#[test]
fn a_checkpoint_of_torch_distributed_is_named_as_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let step = |name: &str| {
        let step = directory.path().join(name);
        fs::create_dir_all(&step).expect("made");
        for file in [".metadata", "__0_0.distcp", "__1_0.distcp"] {
            fs::write(step.join(file), "part").expect("written");
        }
        step
    };
    let one = step("step-100");
    step("step-200");
    // Megatron's torch_dist keeps its arguments beside the parts.
    fs::write(one.join("common.pt"), "arguments").expect("written");
    for words in [
        ["report", name(&one), "--tokens", "1,2"],
        ["history", name(&one), "--tokens", "1,2"],
        ["history", name(directory.path()), "--tokens", "1,2"],
        ["check", name(&one), "--tokens", "1,2"],
    ] {
        let (code, _, said) = ran(&words);
        assert_eq!(code, Some(2), "{words:?}: {said}");
        for part in [
            "a torch distributed checkpoint",
            "convert it with",
            "dcp_to_torch",
        ] {
            assert!(said.contains(part), "{words:?}: {said}");
        }
        assert!(!said.contains("found none"), "{words:?}: {said}");
    }
    // As accelerate saves it: the parts lie below the configuration.
    let outer = directory.path().join("checkpoint-5");
    fs::create_dir_all(&outer).expect("made");
    fs::rename(&one, outer.join("pytorch_model_fsdp_0")).expect("moved");
    fs::write(outer.join("config.json"), "{\"model_type\": \"gpt2\"}").expect("written");
    let (code, _, said) = ran(&["report", name(&outer), "--tokens", "1,2"]);
    assert!(
        code == Some(2) && said.contains("pytorch_model_fsdp_0 is a torch distributed checkpoint"),
        "{said}"
    );
}
