//! What a trace will hold, where each tensor will lie, and how large the file will be: known before anything runs.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::model::{Hook, Model};
use crate::prompt::Prompt;

/// Which hooks, layers and heads a trace takes.
#[derive(Debug, Clone)]
pub struct Selection {
    pub hooks: Vec<Hook>,
    /// `None` for all.
    pub layers: Option<Vec<usize>>,
    /// `None` for all; the same for every chosen layer.
    pub heads: Option<Vec<usize>>,
}

/// A tensor of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    pub shape: Vec<usize>,
    /// First byte, counted from the end of the header.
    pub start: u64,
}

/// Where every tensor will lie.
#[derive(Debug)]
pub struct TracePlan {
    pub hooks: Vec<Hook>,
    pub layers: Vec<usize>,
    pub heads: Vec<usize>,
    pub n_kv_heads: usize,
    pub tensors: BTreeMap<String, Planned>,
    header: Vec<u8>,
    pub data_len: u64,
}

impl TracePlan {
    /// # Errors
    /// When a layer or head does not exist.
    pub fn new(model: &Model, prompt: &Prompt, selection: &Selection) -> Result<Self> {
        let spec = &model.spec;
        let attention = &spec.main_stack().blocks[0].attention;
        let layers = chosen("layer", selection.layers.as_deref(), spec.n_layers())?;
        let heads = chosen("head", selection.heads.as_deref(), attention.n_heads)?;
        let n = prompt.tokens.len();
        // A hook named twice would reserve its bytes twice, and leave a gap that readers refuse.
        let mut hooks = selection.hooks.clone();
        hooks.sort_unstable();
        hooks.dedup();
        let mut plan = Self {
            hooks,
            layers,
            heads,
            n_kv_heads: attention.n_kv_heads,
            tensors: BTreeMap::new(),
            header: Vec::new(),
            data_len: 0,
        };
        let mut entries = serde_json::Map::new();
        let metadata = json!({
            "attnscope.mask": if attention.mask.causal { "causal" } else { "bidirectional" },
            "attnscope.softmax_axis": attention.softmax_axis.to_string(),
            "attnscope.source": format!("{} ({})", model.checkpoint.name, spec.family),
        });
        entries.insert("__metadata__".to_owned(), metadata);
        plan.add(&mut entries, "tokens".to_owned(), vec![n], "I64");
        if prompt.real.is_some() {
            plan.add(&mut entries, "attention_mask".to_owned(), vec![n], "I64");
        }
        let n_heads = plan.heads.len();
        let kv_heads = plan.kv_heads(attention.n_heads);
        for layer_idx in plan.layers.clone() {
            for hook in plan.hooks.clone() {
                let shape = match hook {
                    Hook::Scores | Hook::Pattern => vec![n_heads, n, n],
                    Hook::Q | Hook::RotQ => vec![n_heads, n, attention.d_head],
                    Hook::Z => vec![n_heads, n, attention.d_value],
                    Hook::K | Hook::RotK => vec![kv_heads.len(), n, attention.d_head],
                    Hook::V => vec![kv_heads.len(), n, attention.d_value],
                    Hook::ResidPre | Hook::AttnOut | Hook::MlpOut | Hook::ResidPost => {
                        vec![n, spec.d_model]
                    }
                    Hook::Logits => continue,
                };
                plan.add(&mut entries, hook.full_name(layer_idx), shape, "F32");
            }
        }
        if plan.hooks.contains(&Hook::Logits) {
            let (name, width) = match &spec.head {
                Some(_) => ("logits", spec.d_vocab),
                None => ("last_hidden_state", spec.d_model),
            };
            plan.add(&mut entries, name.to_owned(), vec![n, width], "F32");
        }
        plan.header = header(&Value::Object(entries));
        Ok(plan)
    }

    /// The kv heads that serve the chosen heads, in order.
    pub fn kv_heads(&self, n_heads: usize) -> Vec<usize> {
        let per_kv = n_heads / self.n_kv_heads;
        let mut kv_heads: Vec<usize> = self
            .heads
            .iter()
            .map(|head_idx| head_idx / per_kv)
            .collect();
        kv_heads.dedup();
        kv_heads
    }

    fn add(
        &mut self,
        entries: &mut serde_json::Map<String, Value>,
        name: String,
        shape: Vec<usize>,
        dtype: &str,
    ) {
        let size = if dtype == "I64" { 8 } else { 4 };
        let n_bytes = shape.iter().product::<usize>() as u64 * size;
        let start = self.data_len;
        self.data_len += n_bytes;
        let entry =
            json!({ "dtype": dtype, "shape": shape, "data_offsets": [start, self.data_len] });
        entries.insert(name.clone(), entry);
        self.tensors.insert(name, Planned { shape, start });
    }

    /// Length and header, as they begin the file.
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    /// Size of the whole file in bytes.
    pub fn file_len(&self) -> u64 {
        self.header.len() as u64 + self.data_len
    }
}

/// The length and the padded header of a safetensors file.
fn header(entries: &Value) -> Vec<u8> {
    let mut text = entries.to_string().into_bytes();
    // The format wants tensor data to begin at a multiple of 8.
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend(text);
    bytes
}

fn chosen(what: &str, asked: Option<&[usize]>, n: usize) -> Result<Vec<usize>> {
    let mut chosen = asked.map_or_else(|| (0..n).collect(), <[usize]>::to_vec);
    chosen.sort_unstable();
    chosen.dedup();
    match chosen.iter().find(|idx| **idx >= n) {
        Some(idx) => Err(Error::Prompt(format!(
            "{what} {idx} does not exist: expected 0..{}",
            n - 1
        ))),
        None => Ok(chosen),
    }
}
