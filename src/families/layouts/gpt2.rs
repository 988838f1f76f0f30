//! GPT-2's names: stored input-major by Hugging Face, output-major by nanoGPT.

use attnscope_checkpoint::Origin;
use attnscope_compute::error::Result;

use super::{Facts, Layout};
use crate::unread::is_copy;

pub const LAYOUT: Layout = Layout {
    known_by: "nanoGPT or GPT-2 (transformer.h.0.attn.c_attn.weight)",
    describe,
};

/// The parts of a layer; some versions store masks too.
const PARTS: &[&str] = &[
    "ln_1.weight",
    "ln_1.bias",
    "attn.c_attn.weight",
    "attn.c_attn.bias",
    "attn.c_proj.weight",
    "attn.c_proj.bias",
    "attn.bias",
    "attn.masked_bias",
    "ln_2.weight",
    "ln_2.bias",
    "mlp.c_fc.weight",
    "mlp.c_fc.bias",
    "mlp.c_proj.weight",
    "mlp.c_proj.bias",
];

fn describe(facts: &mut Facts<'_>) -> Result<bool> {
    let fused = |base: &str| format!("{base}h.0.attn.c_attn.weight");
    let bases = ["transformer.", ""];
    let Some(base) = bases.into_iter().find(|base| facts.has(&fused(base))) else {
        return Ok(false);
    };
    let name = |tail: &str| format!("{base}{tail}.weight");
    let [d_vocab, d_model] = facts.matrix(&name("wte"))?;
    let [n_ctx, _] = facts.matrix(&name("wpe"))?;
    let up = facts.matrix(&name("h.0.mlp.c_fc"))?;
    let [n_first, n_second] = facts.matrix(&fused(base))?;
    let wide = d_model.saturating_mul(3);
    let is_output_major = [n_first, n_second] == [wide, d_model];
    let (family, d_mlp) = if is_output_major {
        ("nanogpt", up[0])
    } else if [n_first, n_second] == [d_model, wide] {
        ("gpt2", up[1])
    } else {
        let problem = format!(
            "expected [{wide}, {d_model}] or [{d_model}, {wide}], found [{n_first}, {n_second}]"
        );
        return Err(facts.at(&fused(base), problem));
    };
    facts.by_names("model_type", family);
    facts.layers("n_layer", &format!("{base}h."), "attn.c_attn.weight", PARTS)?;
    facts.by_shape("n_embd", d_model, &name("wte"), &["n_embd"])?;
    facts.by_shape("vocab_size", d_vocab, &name("wte"), &["vocab_size"])?;
    facts.by_shape("n_positions", n_ctx, &name("wpe"), &["block_size"])?;
    facts.by_shape("n_inner", d_mlp, &name("h.0.mlp.c_fc"), &[])?;
    facts.needed("n_heads", "n_head", &["n_head"]);
    if is_output_major {
        activation(facts, &name("wte"));
    }
    if is_output_major && d_vocab >= 50257 {
        facts.no_text = Some(
            "nanoGPT takes GPT-2's vocabulary from tiktoken; no tokenizer.json, vocab.json with merges.txt or meta.pkl is beside the checkpoint",
        );
    }
    Ok(true)
}

/// Finds out which form of GELU the weights were trained with: two programs use these names, and nanoGPT changed its form.
fn activation(facts: &mut Facts<'_>, tokens: &str) {
    const KEY: &str = "activation_function";
    let args = facts.plain_values.get("model_args");
    if facts.overrides.has("activation") {
        return;
    }
    if let Some(args) = args {
        // In its first month, nanoGPT computed the tanh form and did not store the choice of biases.
        if args.get("bias").is_none() {
            let origin = Origin::Derived("nanoGPT before it kept bias".to_owned());
            facts.config.put(KEY, "gelu_new", origin);
        }
        return;
    }
    const HEAD: &str = "lm_head.weight";
    let has_own_head = facts.has(HEAD) && !is_copy(facts.tensors, HEAD, tokens);
    if has_own_head {
        let origin = Origin::Derived("an unembedding of its own, as minGPT has".to_owned());
        facts.config.put(KEY, "gelu_new", origin);
        facts.remarks.push(
            "read as minGPT, whose unembedding is its own: tanh form of gelu; a nanoGPT that was not tied takes --set activation=gelu"
                .to_owned(),
        );
    }
}
