//! Merging an adapter into the tensors of its base model.

use std::path::Path;
use std::sync::Arc;

use attnscope_compute::error::{Error, Result};

use super::config::{AdapterConfig, CONFIG};
use super::places::{Part, Places, part_of};
use crate::config::{Knob, Origin};
use crate::counted::counted;
use crate::made::{Adapted, ComputedTensor, Low, Magnitude};
use crate::stored::Stored;
use crate::tensor_info::TensorInfo;
use crate::tensors::Tensors;
use crate::{Checkpoint, pytorch, safetensors};

const SAFETENSORS: &str = "adapter_model.safetensors";
const PYTORCH: &str = "adapter_model.bin";

/// Applies an adapter to the tensors of its base model.
///
/// # Errors
/// When the kind of adapter cannot be applied, or one of its tensors does not fit the base.
pub fn apply(checkpoint: &mut Checkpoint, config: &AdapterConfig, directory: &Path) -> Result<()> {
    config.check()?;
    let mut adapter = open_weights(directory)?;
    let file_of = |adapter: &Tensors, name: &str| adapter.file_of(name).to_path_buf();
    let is_conv1d = checkpoint
        .config
        .get("model_type")
        .and_then(|v| v.as_str())
        .is_some_and(|model_type| matches!(model_type, "gpt2" | "openai-gpt"));
    let has_config = !checkpoint.config.is_absent();
    let n_files = checkpoint.tensors.files.len();
    let moved = |mut info: TensorInfo| {
        info.file_idx += n_files;
        if let Some(scales) = &mut info.scales {
            scales.file_idx += n_files;
        }
        info
    };
    let mut places = Places::default();
    let mut replaced = Vec::new();
    for (name, info) in std::mem::take(&mut adapter.index) {
        let info = moved(info);
        if !info.dtype.is_float() {
            let problem = format!("expected f32, f16 or bf16, found {}", info.dtype);
            return Err(Error::tensor(file_of(&adapter, ""), name, problem));
        }
        match part_of(&name) {
            Part::Whole(tensor) => replaced.push((tensor, info)),
            Part::Of(module, role) => places.add(module, role, info),
            Part::Copy => {}
            Part::Unknown(what) => {
                let problem =
                    format!("{what} cannot be applied; --no-adapter opens the base alone");
                return Err(Error::tensor(file_of(&adapter, ""), name, problem));
            }
        }
    }
    let file = file_of(&adapter, "");
    checkpoint.tensors.files.extend(adapter.files);
    checkpoint.tensors.metadata.extend(adapter.metadata);
    let n_replaced = replaced.len();
    for (tensor, info) in replaced {
        let name = base_name(&checkpoint.tensors, &tensor).unwrap_or(tensor);
        if let Some(base) = checkpoint.tensors.index.get(&name).cloned()
            && !config.ties_weights
        {
            keep_tied_head(&mut checkpoint.tensors, &name, &base);
        }
        checkpoint.tensors.index.insert(name, info);
    }
    let (mut n_adapted, mut ranks) = (0, Vec::new());
    for (module, parts) in places.of_modules {
        let refused = |problem: String| Error::tensor(&file, &module, problem);
        let name =
            base_name(&checkpoint.tensors, &format!("{module}.weight")).ok_or_else(|| {
                refused("the base has no tensor for it; --base names another base".to_owned())
            })?;
        let base = checkpoint.tensors.index[&name].clone();
        let (a, b, is_embedding) = parts.pair().map_err(refused)?;
        let refused = |problem: String| Error::tensor(&file, &module, problem);
        let found = format!(
            "A {:?}, B {:?} for {name} {:?}",
            a.shape, b.shape, base.shape
        );
        let (&[rank, n_in], &[n_out, of_b]) = (&a.shape[..], &b.shape[..]) else {
            return Err(refused(format!("expected two matrices, found {found}")));
        };
        let fits = |shape: [usize; 2]| rank == of_b && rank > 0 && base.shape == shape;
        let last = module.rsplit('.').next().unwrap_or_default();
        let is_turned = if is_embedding {
            true
        } else if n_in != n_out {
            fits([n_in, n_out])
        } else if has_config {
            is_conv1d && ["c_attn", "c_proj", "c_fc", "q_attn"].contains(&last)
        } else {
            config.fan_in_fan_out
        };
        if !fits(if is_turned {
            [n_in, n_out]
        } else {
            [n_out, n_in]
        }) {
            return Err(refused(format!(
                "expected shapes that fit the base, found {found}"
            )));
        }
        let magnitude = match (parts.magnitude, config.use_dora) {
            (None, false) => None,
            (Some(lengths), true) if lengths.n_elements() == n_out => Some(Magnitude {
                lengths,
                of_columns: is_turned,
            }),
            (Some(lengths), true) => {
                let problem = format!("expected {n_out} magnitudes, found {:?}", lengths.shape);
                return Err(refused(problem));
            }
            (Some(_), false) => {
                return Err(refused("has magnitudes, but use_dora is false".to_owned()));
            }
            (None, true) => {
                return Err(refused(
                    "use_dora is true, but its magnitudes are missing".to_owned(),
                ));
            }
        };
        if is_embedding && !config.ties_weights {
            keep_tied_head(&mut checkpoint.tensors, &name, &base);
        }
        let (by_row, by_column) = if is_turned { (a, b) } else { (b, a) };
        let made = ComputedTensor::Adapted(Box::new(Adapted {
            scale: config.scale(&module, rank)? as f32,
            low: Low {
                by_row,
                by_column,
                is_transposed: is_turned,
            },
            magnitude,
            base: base.clone(),
        }));
        let info = TensorInfo {
            strides: None,
            stored: Stored::AsIs,
            scales: None,
            made: Some(Arc::new(made)),
            ..base
        };
        if !ranks.contains(&rank) {
            ranks.push(rank);
        }
        n_adapted += 1;
        checkpoint.tensors.index.insert(name, info);
    }
    if n_adapted + n_replaced == 0 {
        return Err(Error::file(file, "holds no tensors of an adapter"));
    }
    config.take_task(&mut checkpoint.config);
    ranks.sort_unstable();
    let ranks: Vec<String> = ranks.iter().map(usize::to_string).collect();
    let kind = if config.use_dora { "DoRA" } else { "LoRA" };
    let replaced = match n_replaced {
        0 => String::new(),
        n => format!(", {} replaced", counted(n, "tensor")),
    };
    let value = format!(
        "{kind} of rank {} on {}{replaced}; base {}",
        ranks.join(", "),
        counted(n_adapted, "tensor"),
        checkpoint.name
    );
    checkpoint.remarks.push(format!(
        "adapter: {value}; --no-adapter opens the base alone"
    ));
    checkpoint.knobs.push(Knob {
        name: "adapter",
        value,
        origin: Origin::Derived(CONFIG.to_owned()),
    });
    Ok(())
}

/// Opens the file of an adapter's weights.
fn open_weights(directory: &Path) -> Result<Tensors> {
    let safetensors = directory.join(SAFETENSORS);
    if safetensors.is_file() {
        return safetensors::open_file(&safetensors);
    }
    let pytorch = directory.join(PYTORCH);
    if pytorch.is_file() {
        return Ok(pytorch::open_file(&pytorch)?.tensors);
    }
    let problem = format!(
        "expected {SAFETENSORS} or {PYTORCH} beside {CONFIG}; --no-adapter opens the weights without it"
    );
    Err(Error::file(directory, problem))
}

/// Keeps a head that is tied to an adapted embedding at the base's values: PEFT wraps only the embedding.
fn keep_tied_head(tensors: &mut Tensors, name: &str, base: &TensorInfo) {
    const EMBEDDINGS: [&str; 3] = ["embed_tokens.weight", "wte.weight", "shared.weight"];
    const HEAD: &str = "lm_head.weight";
    if EMBEDDINGS.iter().any(|end| name.ends_with(end)) && !tensors.contains(HEAD) {
        tensors.index.insert(HEAD.to_owned(), base.clone());
    }
}

/// Finds the base's name for a tensor that the adapter calls `name`: a model may be saved with or without its outer wrapper.
fn base_name(tensors: &Tensors, name: &str) -> Option<String> {
    let mut rest = name;
    loop {
        if tensors.contains(rest) {
            return Some(rest.to_owned());
        }
        let end = format!(".{rest}");
        let mut longer = tensors.iter().filter(|(known, _)| known.ends_with(&end));
        match (longer.next(), longer.next()) {
            (Some((known, _)), None) => return Some(known.to_owned()),
            (Some(_), Some(_)) => return None,
            (None, _) => {}
        }
        // Keep at least the module and its parent.
        rest = rest.split_once('.').map(|(_, rest)| rest)?;
        if rest.matches('.').count() < 2 {
            return None;
        }
    }
}
