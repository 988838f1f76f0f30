//! Configurations of every family, and settings beside a checkpoint: opened, and run on a few tokens.

use std::path::Path;

use attnscope_compute::error::Result;
use attnscope_compute::ops::Cpu;
use attnscope_prompt::{
    BUILT_IN_SOUND, PictureSource, PromptForm, Request, Source, Target as Written,
};
use attnscope_run::{MemoryNeed, Options, Silent, generate, input_of};
use attnscope_spec::Model;

use super::Target;
use super::checkpoints::opened;
use crate::seeds::{Kind, Seed, directories, fixture};

/// The largest weights that are laid out: what is larger would be read most of the time.
const LARGEST: usize = 100_000;

const KEYS: &[&str] = &[
    "model_type",
    "architectures",
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "num_hidden_layers",
    "head_dim",
    "intermediate_size",
    "max_position_embeddings",
    "vocab_size",
    "sliding_window",
    "rope_theta",
    "rope_scaling",
    "rope_type",
    "factor",
    "original_max_position_embeddings",
    "layer_types",
    "hidden_act",
    "rms_norm_eps",
    "layer_norm_eps",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "query_pre_attn_scalar",
    "partial_rotary_factor",
    "num_local_experts",
    "num_experts_per_tok",
    "n_head",
    "n_embd",
    "n_layer",
    "n_positions",
    "tie_word_embeddings",
    "relative_attention_num_buckets",
    "relative_attention_max_distance",
    "inner_group_num",
    "num_hidden_groups",
    "clip_qkv",
    "alibi",
    "window_size",
    "attention_types",
    "kv_lora_rank",
    "q_lora_rank",
    "qk_rope_head_dim",
    "n_group",
    "topk_group",
    "first_k_dense_replace",
    "use_cache",
    "pad_token_id",
    "decoder_start_token_id",
    "eos_token_id",
    "bos_token_id",
    "is_encoder_decoder",
    "encoder_layers",
    "decoder_layers",
    "d_kv",
    "text_config",
    "yarn",
    "llama3",
    "longrope",
    "dynamic",
    "linear",
    "gelu",
    "silu",
    "relu",
    "gelu_new",
    "llama",
    "gpt2",
    "t5",
    "bert",
    "mixtral",
    "sliding_attention",
    "full_attention",
    "layer_norm_rms_eps",
    "quantization_config",
];

/// Ids, or the picture or the sound that the program has for a model that takes none.
fn given(model: &Model) -> Request {
    let limits = model.spec.limits();
    if limits.preprocessing.is_some() {
        return Request {
            source: Source::Picture(PictureSource::BuiltIn),
            ..Request::ids(Vec::new())
        };
    }
    if limits.sound.is_some() {
        return Request::text(BUILT_IN_SOUND);
    }
    Request::ids(vec![1, 3, 2, 1])
}

/// What a report does: the memory it needs is asked first, as its command does.
pub fn run(model: &Model) -> Result<()> {
    let limits = model.spec.limits();
    let writes = model.spec.head.is_some() || limits.rows_of_target.is_some();
    let target = match limits.start_token {
        Some(_) if writes => Written::Generate(2),
        Some(start) => Written::Ids(vec![start]),
        None => Written::Generate(0),
    };
    let request = Request {
        target,
        ..given(model)
    };
    let no_text = PromptForm::Ids("not asked for".to_owned());
    let mut prompt = attnscope_prompt::prepare(&request, &no_text, model.spec.limits())?;
    let options = Options {
        keep_bytes: Some(1 << 20),
        predicts: true,
    };
    let longest = input_of(&prompt.longest());
    let need = MemoryNeed::of(model, std::slice::from_ref(&longest), options, 1);
    attnscope_checkpoint::machine::check_memory(need.total())?;
    generate(
        &Cpu,
        model,
        &mut prompt,
        &|id| id.to_string(),
        &mut |_| (),
        &|| false,
    )?;
    let input = input_of(&prompt);
    attnscope_run::run(&Cpu, model, &input, options, &mut Silent, None, &|| false)?;
    Ok(())
}

fn open_and_run(file: &Path) -> std::result::Result<(), String> {
    let directory = file.parent().expect("a directory");
    let read = opened(directory).and_then(attnscope_families::read);
    read.and_then(|model| run(&model))
        .map_err(|e| e.to_string())
}

pub const FAMILIES: Target = Target {
    name: "config",
    n_quick: 3_000,
    seeds: || {
        let mut seeds = Vec::new();
        for case in directories("oracle") {
            let weights = format!("oracle/{case}/model/model.safetensors");
            let is_there = testing::root().join("fixtures").join(&weights).is_file();
            let bytes = if is_there {
                fixture(&weights)
            } else {
                Vec::new()
            };
            // A decoder with fewer places than the built-in sound has rows refuses it, and one without a head writes no target.
            let refuses = ["moonshine_streaming", "prophetnet"].iter();
            let mut refuses = refuses.map(|name| case.strip_prefix(name));
            let refuses = refuses.any(|rest| matches!(rest, Some("" | "_b")));
            if bytes.is_empty() || bytes.len() > LARGEST || refuses {
                continue;
            }
            let config = fixture(&format!("oracle/{case}/model/config.json"));
            let seed = Seed::named(Kind::Json, "config.json", config);
            let seed = seed.with("model.safetensors", bytes);
            // Without it some pictures would have more places than a small model.
            let processor = format!("oracle/{case}/model/preprocessor_config.json");
            let has_one = testing::root().join("fixtures").join(&processor).is_file();
            seeds.push(if has_one {
                seed.with("preprocessor_config.json", fixture(&processor))
            } else {
                seed
            });
        }
        for case in ["additive", "general"] {
            let weights = fixture(&format!("seq2seq/{case}/model.safetensors"));
            let config = fixture(&format!("seq2seq/{case}/config.json"));
            seeds.push(
                Seed::named(Kind::Json, "config.json", config).with("model.safetensors", weights),
            );
        }
        seeds
    },
    tokens: KEYS,
    read: open_and_run,
};

pub const SETTINGS: Target = Target {
    name: "settings",
    n_quick: 4_000,
    seeds: || {
        let texts = [
            "[set]\nn_heads = 2\nmask = \"bidirectional\"\nscale = 0.5\n",
            "[set]\nwindow = 3\nsoftmax_axis = \"queries\"\n\n[rename]\n\"transformer.h.{layer}.ln_1.weight\" = \"transformer.h.{layer}.ln_1.weight\"\n",
            "# nothing\n[rename]\n'transformer.wte.weight' = 'transformer.wte.weight'\n",
        ];
        let directory = "oracle/gpt2_inverse/model";
        let weights = fixture(&format!("{directory}/model.safetensors"));
        let config = fixture(&format!("{directory}/config.json"));
        let seed = |text: &str| {
            Seed::named(Kind::Lines, "attnscope.toml", text)
                .with("model.safetensors", weights.clone())
                .with("config.json", config.clone())
        };
        texts.map(seed).into()
    },
    tokens: &[
        "[set]",
        "[rename]",
        "[[set]]",
        "n_heads",
        "n_kv_heads",
        "mask",
        "window",
        "scale",
        "softmax_axis",
        "softcap",
        "rope_theta",
        "rope_dims",
        "d_head",
        "alibi",
        "none",
        "causal",
        "\"bidirectional\"",
        "{layer}",
        "=",
        "'''",
        "\"\"\"",
        "1979-05-27",
        "0x7f",
        "inf",
        "nan",
        "true",
        "norm_eps",
        "activation",
        "n_ctx",
        "positions",
        "18446744073709551615",
        "9223372036854775807",
        "-1",
        "1e308",
        "transformer.wte.weight",
    ],
    read: open_and_run,
};
