//! GPT-2-shaped checkpoints with random weights, written once and kept with the build.
#![allow(dead_code, reason = "each benchmark uses a part of it")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use half::bf16;
use safetensors::tensor::{Dtype, TensorView};

/// Sizes of a checkpoint.
#[derive(Clone, Copy)]
pub struct Shape {
    pub n_layers: usize,
    pub n_heads: usize,
    pub d_model: usize,
    pub n_ctx: usize,
    pub d_vocab: usize,
    pub is_bf16: bool,
}

/// A third of GPT-2 small: its blocks, but 4 of them and a smaller vocabulary. 140 MB in f32.
pub const THIRD_OF_GPT2: Shape = Shape {
    n_layers: 4,
    n_heads: 12,
    d_model: 768,
    n_ctx: 1024,
    d_vocab: 8192,
    is_bf16: false,
};

/// Where a checkpoint of this shape lies; it is written first where it does not yet.
pub fn checkpoint(shape: Shape) -> PathBuf {
    let Shape {
        n_layers,
        n_heads,
        d_model,
        n_ctx,
        d_vocab,
        is_bf16,
    } = shape;
    let dtype = if is_bf16 { "bf16" } else { "f32" };
    let name = format!("gpt2-{n_layers}x{n_heads}-{d_model}-{n_ctx}-{d_vocab}-{dtype}");
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let config = directory.join("config.json");
    // The configuration is written last: with it, all is there.
    if !config.exists() {
        std::fs::create_dir_all(&directory).expect("a directory");
        write_weights(shape, &directory.join("model.safetensors"));
        let text = serde_json::json!({
            "model_type": "gpt2", "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
            "n_layer": n_layers, "n_head": n_heads, "n_embd": d_model, "n_positions": n_ctx,
            "vocab_size": d_vocab, "tie_word_embeddings": true,
        });
        std::fs::write(&config, text.to_string()).expect("a configuration");
    }
    directory
}

/// Ids all over a vocabulary.
pub fn ids(n: usize, d_vocab: usize) -> Vec<u32> {
    (0..n).map(|i| ((i * 7919 + 13) % d_vocab) as u32).collect()
}

fn write_weights(shape: Shape, path: &Path) {
    let d = shape.d_model;
    let mut tensors: BTreeMap<String, (Vec<usize>, f32)> = BTreeMap::new();
    let mut put = |name: String, shape: &[usize], deviation: f32| {
        tensors.insert(name, (shape.to_vec(), deviation));
    };
    put("wte.weight".to_owned(), &[shape.d_vocab, d], 0.02);
    put("wpe.weight".to_owned(), &[shape.n_ctx, d], 0.02);
    for layer_idx in 0..shape.n_layers {
        let at = |name: &str| format!("h.{layer_idx}.{name}");
        for (name, n_in, n_out, deviation) in [
            // Four times the usual start, so that attention is not uniform.
            ("attn.c_attn", d, 3 * d, 0.08),
            ("attn.c_proj", d, d, 0.02),
            ("mlp.c_fc", d, 4 * d, 0.02),
            ("mlp.c_proj", 4 * d, d, 0.02),
        ] {
            put(at(&format!("{name}.weight")), &[n_in, n_out], deviation);
            put(at(&format!("{name}.bias")), &[n_out], 0.02);
        }
        for name in ["ln_1", "ln_2"] {
            put(at(&format!("{name}.weight")), &[d], 0.0);
            put(at(&format!("{name}.bias")), &[d], 0.02);
        }
    }
    put("ln_f.weight".to_owned(), &[d], 0.0);
    put("ln_f.bias".to_owned(), &[d], 0.02);

    let mut random = fastrand::Rng::with_seed(0);
    let mut filled = BTreeMap::new();
    for (name, (tensor_shape, deviation)) in tensors {
        let n: usize = tensor_shape.iter().product();
        // A deviation of 0 marks a gain: ones.
        let value = |random: &mut fastrand::Rng| match deviation {
            0.0 => 1.0,
            // Uniform within ±√3 deviations.
            _ => (random.f32() * 2.0 - 1.0) * deviation * 3f32.sqrt(),
        };
        let bytes: Vec<u8> = if shape.is_bf16 {
            let values = (0..n).map(|_| bf16::from_f32(value(&mut random)).to_le_bytes());
            values.flatten().collect()
        } else {
            let values = (0..n).map(|_| value(&mut random).to_le_bytes());
            values.flatten().collect()
        };
        filled.insert(name, (tensor_shape, bytes));
    }
    let dtype = if shape.is_bf16 {
        Dtype::BF16
    } else {
        Dtype::F32
    };
    let views = filled.iter().map(|(name, (tensor_shape, bytes))| {
        let view = TensorView::new(dtype, tensor_shape.clone(), bytes).expect("its bytes");
        (name, view)
    });
    safetensors::serialize_to_file(views, None, path).expect("a file of weights");
}
