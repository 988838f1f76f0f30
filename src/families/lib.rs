//! One file per checkpoint family: configuration → specs, canonical parts → tensor names. Computes nothing.

mod albert;
mod aliases;
mod apertus;
mod arcee;
mod bamba;
mod bart;
mod bert;
mod bert_generation;
mod big_bird;
mod biogpt;
mod blenderbot;
mod blenderbot_small;
mod bloom;
mod classes;
mod clip_text_model;
mod clip_vision_model;
mod codegen;
mod cohere;
mod cohere2;
mod ctrl;
mod cwm;
mod data2vec_text;
mod dbrx;
mod deberta;
mod deberta_v2;
mod deepseek_v2;
mod deepseek_v3;
mod deit;
mod described;
mod diffllama;
mod dinov2;
mod dinov2_with_registers;
mod distilbert;
mod electra;
mod encoder_decoder;
mod ernie;
mod ernie4_5;
mod ernie4_5_moe;
mod esm;
mod eurobert;
mod exaone4;
mod fairseq;
mod falcon;
mod falcon_h1;
mod gemma;
mod gemma2;
mod gemma3_text;
mod gemma3n_text;
mod gemma4_text;
mod generation;
mod glm;
mod glm4;
mod glm4_moe;
mod gpt2;
mod gpt_bigcode;
mod gpt_neo;
mod gpt_neox;
mod gpt_oss;
mod gptj;
mod granite;
mod granitemoe;
mod granitemoehybrid;
mod helium;
mod hunyuan_v1_dense;
mod jamba;
mod layouts;
mod led;
mod lfm2;
mod list;
mod llama;
mod llama4_text;
mod longformer;
mod lstm_seq2seq;
mod m2m_100;
mod marian;
mod mbart;
mod megatron_bert;
mod minimax;
mod ministral;
mod ministral3;
mod mistral;
mod mixers;
mod mixtral;
mod modernbert;
mod mpnet;
mod mpt;
mod mt5;
mod nanogpt;
mod nemotron;
mod nemotron_h;
mod nllb_moe;
mod nomic_bert;
mod olmo;
mod olmo2;
mod olmo3;
mod olmoe;
mod openai_gpt;
mod opt;
mod overrides;
mod pegasus;
mod persimmon;
mod phi;
mod phi3;
mod phimoe;
mod qwen2;
mod qwen2_moe;
mod qwen3;
mod qwen3_moe;
mod qwen3_next;
mod reading;
mod recurrent_gemma;
mod relatives;
mod rembert;
mod roberta;
mod roformer;
mod seed_oss;
mod siglip_text_model;
mod siglip_vision_model;
mod smollm3;
mod stablelm;
mod starcoder2;
mod t5;
mod t5gemma;
mod torch_encoder;
mod torch_transformer;
mod towers;
mod umt5;
pub mod unread;
mod versions;
mod vit;
mod whisper;
mod wrapper;
mod xglm;
mod xlm;
mod xlm_roberta;
mod xlm_roberta_xl;

pub use self::list::{FAMILIES, Family};
pub use self::overrides::settable;
pub use self::reading::described as description;

use std::sync::Arc;

use attnscope_checkpoint::{Checkpoint, Config, Knob, Origin, Quantisation, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{BlockSpec, Model, ModelSpec, StackSpec};
use serde_json::Value;

use self::overrides::Overrides;
use self::towers::Tower;
use self::wrapper::Wrapper;

/// Works out how to run an open checkpoint, and checks that every tensor it needs exists. If no file describes the weights, their
/// names and shapes do; the user's settings take precedence over both.
///
/// # Errors
/// When the family is unknown, the quantisation is not supported, a value of the configuration is impossible, or a tensor does
/// not fit.
pub fn read(mut checkpoint: Checkpoint) -> Result<Model> {
    let settings = std::mem::take(&mut checkpoint.settings);
    let overrides = Overrides::read(&settings)?;
    overrides.check_order(&checkpoint.tensors)?;
    let (config, names) = (
        checkpoint.config.clone(),
        checkpoint.tensors.names_as_they_are(),
    );
    let spec = match read_spec(&mut checkpoint, &overrides) {
        Err(refused @ (Error::Tensor { .. } | Error::File { .. })) => {
            checkpoint.tensors.take_names(&names);
            match read_unwrapped(&mut checkpoint, &config, &overrides) {
                Some(spec) => spec,
                None => return Err(relatives::unknown_wrapper(&config, refused)),
            }
        }
        read => read?,
    };
    checkpoint.settings = settings;
    Ok(Model {
        checkpoint: Arc::new(checkpoint),
        spec,
    })
}

/// Reads weights that were saved inside a larger model, with the prefix removed from their names.
fn read_unwrapped(
    checkpoint: &mut Checkpoint,
    config: &Config,
    overrides: &Overrides<'_>,
) -> Option<ModelSpec> {
    for unwrapped in checkpoint.tensors.unwrapped() {
        checkpoint.tensors.take_names(&unwrapped);
        checkpoint.config = config.clone();
        let remarks = checkpoint.remarks.len();
        if let Ok(mut spec) = read_spec(checkpoint, overrides) {
            // A prefix of one stack only would hide that stack, and the tensors missing in it.
            let embeds = |stack: &StackSpec| unwrapped.has_moved(&stack.embed.tokens.tensor);
            if !spec.stacks.iter().all(embeds) {
                checkpoint.remarks.truncate(remarks);
                continue;
            }
            let origin = Origin::Derived("tensor names".to_owned());
            spec.knobs.push(Knob {
                name: "tensor_names",
                value: format!("without {}", unwrapped.without),
                origin,
            });
            return Some(spec);
        }
    }
    None
}

/// Builds the spec of weights under their current names.
fn read_spec(checkpoint: &mut Checkpoint, overrides: &Overrides<'_>) -> Result<ModelSpec> {
    if checkpoint.config.is_absent() && !overrides.describes() {
        layouts::recognise(checkpoint, overrides)?;
    }
    let stated = checkpoint.config.get("model_type").and_then(Value::as_str);
    let stated = stated.map(str::to_owned);
    overrides.before(&mut checkpoint.config);
    generation::complete(checkpoint);
    aliases::complete(&mut checkpoint.config)?;
    if checkpoint.config.get("model_type").and_then(Value::as_str)
        == Some(described::FAMILY.model_type)
    {
        described::arrange(checkpoint)?;
    }
    if overrides.has("family")
        && let Some(kind) = checkpoint.config.get("model_type").and_then(Value::as_str)
    {
        checkpoint.tokenizer.set_model_type(kind);
    }
    let tower = Tower::of(checkpoint, overrides.word("tower"));
    // A multimodal model has a separate text configuration.
    let mut text_part = match find(&mut Reader::new(&checkpoint.config)) {
        _ if tower.is_some() => None,
        Ok(_) => None,
        Err(_) => checkpoint.config.text_part(),
    };
    if let Some(text) = &mut text_part {
        aliases::complete(text)?;
    }
    let wrapper = text_part.as_mut().map(|text| {
        let wrapper = Wrapper::of(&checkpoint.config);
        let mut names = checkpoint.tensors.iter().map(|(name, _)| name);
        let has_head = names.any(|name| name.ends_with("lm_head.weight"));
        wrapper.complete(&checkpoint.config, text, has_head);
        wrapper
    });
    let of_tower = tower.as_ref().map(|tower| &tower.config);
    let config = of_tower.or(text_part.as_ref());
    let mut reader = Reader::new(config.unwrap_or(&checkpoint.config));
    tower.iter().for_each(|tower| tower.note(&mut reader));
    let family = match find(&mut reader) {
        Err(Error::Config { file, key, problem }) => {
            let found = reader.value(&key);
            let found = found.and_then(|found| found.as_str().or_else(|| found.get(0)?.as_str()));
            let config = config.unwrap_or(&checkpoint.config);
            let hint = relatives::suggestions(found.unwrap_or_default(), checkpoint, config);
            return Err(Error::config(file, key, format!("{problem}; {hint}")));
        }
        found => found?,
    };
    let quantisation = Quantisation::read(&checkpoint.config)?;
    reader.value("quantization_config");
    if quantisation != Quantisation::None {
        let origin = Origin::Key("quantization_config".to_owned());
        reader.note("quantisation", quantisation, origin);
    }
    // Facts about the file itself, not about attention: read here so that they do not count as unread.
    for key in [
        "architectures",
        "torch_dtype",
        "dtype",
        "transformers_version",
        "_name_or_path",
    ] {
        reader.value(key);
    }
    let mut spec = family.read(checkpoint, &mut reader)?;
    generation::settle(checkpoint, &mut spec);
    reading::tasks::settle(checkpoint, &mut reader, &mut spec)?;
    if !wrapper.as_ref().is_some_and(Wrapper::reads_prefixes) {
        check_direction(&mut reader, &spec)?;
    }
    overrides.check_read(&reader, spec.family)?;
    let mut remarks = reader.remarks();
    (spec.knobs, spec.unread_keys) = reader.finish();
    if let Some(wrapper) = &wrapper {
        remarks.extend(wrapper.apply(&mut spec));
    }
    remarks.extend(versions::remark(&checkpoint.config, &spec));
    if let Some(place) = overrides.place("family") {
        let said = (spec.family, place);
        remarks.extend(relatives::overruled(
            stated.as_deref(),
            said,
            &spec.unread_keys,
        ));
    }
    remarks.extend(reading::two_names::remarks(&checkpoint.config, &spec.knobs));
    remarks.extend(mixers::remark(&spec));
    classes::without_false_head(&checkpoint.config, &mut spec);
    spec.knobs.extend(checkpoint.knobs.iter().cloned());
    overrides.after(&mut spec)?;
    spec.check_tensors(&checkpoint.tensors)?;
    let aside = unread::left_aside(&spec, &checkpoint.tensors);
    checkpoint.remarks.extend(remarks);
    checkpoint.remarks.extend(aside.remarks);
    checkpoint.unread = aside.names;
    Ok(spec)
}

/// Refuses switches that make a decoder bidirectional and contradict the mask; families read their own switches earlier.
fn check_direction(reader: &mut Reader<'_>, spec: &ModelSpec) -> Result<()> {
    let is_causal = spec
        .main_stack()
        .blocks()
        .iter()
        .filter_map(BlockSpec::attention)
        .any(|own| own.mask.causal);
    for (key, turns) in [("use_bidirectional_attention", true), ("is_causal", false)] {
        if is_causal && reader.value(key).and_then(Value::as_bool) == Some(turns) {
            let problem = format!(
                "expected {}: attention to later tokens is not read in this family, found {turns}",
                !turns
            );
            return Err(Error::config(reader.path(), key, problem));
        }
    }
    Ok(())
}

/// The family that a configuration names by `model_type` or by its class.
fn find(reader: &mut Reader<'_>) -> Result<&'static Family> {
    let by = |stored: Option<&Value>| stored.and_then(|v| v.as_str()).map(str::to_owned);
    let architectures = reader.value("architectures");
    if let Some(stored) = reader.value("model_type") {
        let name = by(Some(stored)).ok_or_else(|| {
            let problem = format!("expected the name of a kind of model, found {stored}");
            Error::config(reader.path(), "model_type", problem)
        })?;
        // Older configurations of some multimodal models have the text's keys at the top level, newer ones in a part of their
        // own.
        let is_apart = reader.value("text_config").is_some();
        let alias = aliases::family_of(&name).filter(|_| !is_apart);
        let own = alias.unwrap_or(&name);
        let found = FAMILIES.iter().find(|family| family.model_type == own);
        if let Some(found) = found {
            if own != name {
                let origin = Origin::Derived(format!("model_type {name}"));
                reader.note("read_as", own, origin);
            }
            return Ok(found);
        }
        // The class names a wrapper, unless the user names the family of the wrapped model.
        let class = by(architectures.and_then(|list| list.get(0)));
        let is_alone = reader.value("text_config").is_none() && !reader.is_set("model_type");
        let by_class = class.filter(|_| is_alone);
        let by_class = by_class.and_then(|class| Some((of_class(&class)?, class)));
        let Some((family, class)) = by_class else {
            let problem = format!("{name:?} is not known");
            return Err(Error::config(reader.path(), "model_type", problem));
        };
        let origin = Origin::Derived(format!("class {class}"));
        reader.note("read_as", family.model_type, origin);
        reader.remark(format!(
            "model_type {name:?} is not known: read as {}, by its class {class}",
            family.model_type
        ));
        return Ok(family);
    }
    let class = by(architectures.and_then(|list| list.get(0)));
    let Some(class) = class else {
        let problem = "missing, expected the name of a kind of model".to_owned();
        return Err(Error::config(reader.path(), "model_type", problem));
    };
    let found = of_class(&class);
    found.ok_or_else(|| {
        let problem = format!("{class:?} is not known, and there is no model_type");
        Error::config(reader.path(), "architectures", problem)
    })
}

/// The family of a class name; the longest match counts, so Qwen2Moe goes before Qwen2.
fn of_class(class: &str) -> Option<&'static Family> {
    let fits = |family: &&Family| {
        class
            .strip_prefix(family.architecture)
            .is_some_and(is_class_end)
    };
    let all = FAMILIES.iter().filter(fits);
    all.max_by_key(|family| family.architecture.len())
}

/// Whether the rest of a class name may follow a family's name.
fn is_class_end(rest: &str) -> bool {
    [
        "For",
        "Model",
        "LMHead",
        "MTModel",
        "WithLMHead",
        "Double",
        "",
    ]
    .iter()
    .any(|end| rest == *end || (!end.is_empty() && rest.starts_with(end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_file_is_registered_and_the_list_is_sorted() {
        let directory = env!("CARGO_MANIFEST_DIR");
        let mut files: Vec<String> = std::fs::read_dir(directory)
            .expect("the source tree")
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.is_file() && path.extension().is_some_and(|end| end == "rs"))
            .filter_map(|path| {
                path.file_stem()
                    .map(|stem| stem.to_string_lossy().into_owned())
            })
            .filter(|stem| {
                ![
                    "lib",
                    "relatives",
                    "aliases",
                    "classes",
                    "generation",
                    "layouts",
                    "list",
                    "mixers",
                    "overrides",
                    "towers",
                    "unread",
                    "versions",
                    "wrapper",
                ]
                .contains(&stem.as_str())
            })
            .collect();
        files.sort();
        let names: Vec<&str> = FAMILIES.iter().map(|family| family.model_type).collect();
        assert!(names.is_sorted());
        // Some model types have hyphens, which module names cannot have.
        let mut registered: Vec<String> = names.iter().map(|name| name.replace('-', "_")).collect();
        registered.sort();
        assert_eq!(files, registered);
    }
}
