//! What the manual's commands take for granted: checkpoints, prompts, a log, under the names that the pages give them.

use std::path::Path;

use serde_json::json;
use testing::checkpoint_copy::{Stored, Weights, file_of};

const N_LAYERS: usize = 4;
const N_HEADS: usize = 6;
const D_MODEL: usize = 24;
const N_POSITIONS: usize = 64;
/// Words of the pages' prompts.
const WORDS: &str = "<unk> some text Paris Rome The Eiffel Tower Brandenburg Gate is in the king took a quiet story one cold \
    morning old gave red apple . he saw";
/// Checkpoints that pages name, all of them alike.
const CHECKPOINTS: &[&str] = &[
    "CHECKPOINT",
    "MODEL",
    "checkpoints/step-100",
    "checkpoints/step-50",
    "ckpt-1",
    "ckpt-2",
    "mine",
    "path/to/checkpoint",
    "runs/baseline/step-10",
    "runs/baseline/step-20",
    "runs/latest",
    "runs/step-10",
    "runs/step-20",
];
/// A row of a rollout: what the engine and what the trainer said.
const ROLLOUT: &str = "{\"prompts\": [1, 2], \"responses\": [3, 4], \"rollout_log_probs\": [-3.1, -3.2], \"old_log_probs\": [-3.0, -3.3]}\n";
/// Directories that a person's home has.
const PLACES: &[&str] = &[
    ".home/.config/fish/completions",
    ".home/.local/share/bash-completion/completions",
    ".home/.local/share/man/man1",
    ".home/.zfunc",
];

/// Numbers that look random and are the same everywhere.
struct Numbers(u32);

impl Numbers {
    fn tensor(&mut self, shape: &[usize]) -> Stored {
        let n = shape.iter().product();
        let values: Vec<f32> = (0..n)
            .map(|_| {
                self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (self.0 >> 8) as f32 / (1 << 24) as f32 - 0.5
            })
            .collect();
        Stored::f32(shape, &values)
    }
}

fn filled(n: usize, value: f32) -> Stored {
    Stored::f32(&[n], &vec![value; n])
}

/// A small GPT-2 of random weights, with a tokenizer of whole words.
fn checkpoint(path: &Path, seed: u32) {
    let words: Vec<&str> = WORDS.split_whitespace().collect();
    let mut numbers = Numbers(seed);
    let mut weights = Weights::new();
    let mut put = |name: String, stored| weights.insert(name, stored);
    put("wte.weight".into(), numbers.tensor(&[words.len(), D_MODEL]));
    put("wpe.weight".into(), numbers.tensor(&[N_POSITIONS, D_MODEL]));
    let mut norms = vec!["ln_f".to_owned()];
    for layer_idx in 0..N_LAYERS {
        for (name, n_in, n_out) in [
            ("attn.c_attn", D_MODEL, 3 * D_MODEL),
            ("attn.c_proj", D_MODEL, D_MODEL),
            ("mlp.c_fc", D_MODEL, 4 * D_MODEL),
            ("mlp.c_proj", 4 * D_MODEL, D_MODEL),
        ] {
            let name = format!("h.{layer_idx}.{name}");
            put(format!("{name}.weight"), numbers.tensor(&[n_in, n_out]));
            put(format!("{name}.bias"), filled(n_out, 0.0));
        }
        norms.extend(["ln_1", "ln_2"].map(|name| format!("h.{layer_idx}.{name}")));
    }
    for name in norms {
        put(format!("{name}.weight"), filled(D_MODEL, 1.0));
        put(format!("{name}.bias"), filled(D_MODEL, 0.0));
    }
    let config = json!({
        "model_type": "gpt2", "n_layer": N_LAYERS, "n_head": N_HEADS, "n_embd": D_MODEL,
        "n_positions": N_POSITIONS, "vocab_size": words.len(),
    });
    let ids: serde_json::Map<_, _> = words
        .iter()
        .enumerate()
        .map(|(id, word)| ((*word).to_owned(), json!(id)))
        .collect();
    let tokenizer = json!({
        "version": "1.0", "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "vocab": ids, "unk_token": "<unk>"},
    });
    std::fs::create_dir_all(path).expect("a directory");
    let write = |name: &str, bytes: Vec<u8>| std::fs::write(path.join(name), bytes);
    write("model.safetensors", file_of(&weights)).expect("weights");
    write("config.json", config.to_string().into_bytes()).expect("a configuration");
    write("tokenizer.json", tokenizer.to_string().into_bytes()).expect("a tokenizer");
}

/// Fills the directory in which a page's commands run.
pub fn fill(directory: &Path) {
    checkpoint(&directory.join("A"), 1);
    checkpoint(&directory.join("B"), 2);
    for name in CHECKPOINTS {
        checkpoint(&directory.join(name), 1);
    }
    for place in PLACES {
        std::fs::create_dir_all(directory.join(place)).expect("a directory");
    }
    let prompt = "{\"id\": \"one\", \"text\": \"some text\"}\n";
    let thresholds = "[entropy-collapse]\nrelative_entropy = 0.15\n";
    for (name, text) in [
        ("series.csv", "open,close\n1,2\n2,1\n1,3\n"),
        ("prompts.jsonl", prompt),
        ("ci.jsonl", prompt),
        ("mine.toml", thresholds),
        (
            "trainer.jsonl",
            "{\"ids\": [1, 2, 3, 4], \"logprobs\": [null, -3.1, -3.2, -3.3]}\n",
        ),
        (
            "engine.jsonl",
            "{\"ids\": [1, 2, 3, 4], \"logprobs\": [null, -3.1, -3.0, -3.3]}\n",
        ),
        ("rollout.jsonl", ROLLOUT),
    ] {
        std::fs::write(directory.join(name), text).expect("writes");
    }
    let fixtures = testing::root().join("fixtures");
    let code = std::fs::read_to_string(fixtures.join("live/arrays.py")).expect("code");
    std::fs::write(
        directory.join("train.py"),
        code + "\n\nload = words\nforecaster = vectors\n",
    )
    .expect("writes");
    for (from, name) in [
        ("captured/wrong_axis.safetensors", "trace.safetensors"),
        ("histories/healthy.jsonl", "run.jsonl"),
    ] {
        std::fs::copy(fixtures.join(from), directory.join(name)).expect("copies");
    }
}
