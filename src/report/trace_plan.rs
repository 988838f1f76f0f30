//! Layout of a trace file: its tensors, their offsets and the file's size, known before anything runs.

use std::collections::BTreeMap;

use attnscope_compute::attention::{AttentionSpec, Mask, Window};
use attnscope_compute::error::{Error, Result};
use attnscope_forward::Hook;
use attnscope_prompt::Prompt;
use attnscope_run::n_encoded;
use attnscope_spec::{BlockSpec, Model, ModelSpec, Place, Stack, StackSpec};
use serde_json::{Value, json};

/// Hooks, layers and heads that a trace contains.
#[derive(Debug, Clone)]
pub struct Selection {
    pub hooks: Vec<Hook>,
    /// `None` for all; a layer without a stack selects it in every stack.
    pub layers: Option<Vec<(Option<Stack>, usize)>>,
    /// `None` for all; applies to every chosen layer.
    pub heads: Option<Vec<usize>>,
    /// Places to write, instead of layers and heads.
    pub at: Option<Vec<Place>>,
    /// What-ifs that apply to the model.
    pub what_if: Vec<String>,
}

/// A tensor of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    pub shape: Vec<usize>,
    /// First byte, counted from the end of the header.
    pub start: u64,
}

/// Position of every tensor in the file.
#[derive(Debug)]
pub struct TracePlan {
    pub hooks: Vec<Hook>,
    pub layers: Vec<(Stack, usize)>,
    /// The chosen heads of every chosen layer, in order.
    heads: BTreeMap<(Stack, usize), Vec<usize>>,
    pub tensors: BTreeMap<String, Planned>,
    header: Vec<u8>,
    pub data_len: u64,
}

/// Queries by which a window is told to end with each of them; windows repeat themselves.
const MOST_TRIED: usize = 64;

/// The name of the encoder's output.
pub const ENCODER_OUTPUT: &str = "encoder.last_hidden_state";

impl TracePlan {
    /// # Errors
    /// When a layer or head does not exist.
    pub fn new(model: &Model, prompt: &Prompt, selection: &Selection) -> Result<Self> {
        let spec = &model.spec;
        let axis = spec
            .main_stack()
            .first_attention()
            .map(|main| main.softmax_axis.to_string());
        // A hook named twice would reserve its bytes twice, and leave a gap that readers refuse.
        let mut hooks = selection.hooks.clone();
        hooks.sort_unstable();
        hooks.dedup();
        let mut plan = Self {
            hooks,
            layers: match &selection.at {
                Some(places) => layers_at(spec, places)?,
                None => chosen_layers(spec, selection.layers.as_deref())?,
            },
            heads: BTreeMap::new(),
            tensors: BTreeMap::new(),
            header: Vec::new(),
            data_len: 0,
        };
        let mut entries = serde_json::Map::new();
        let mut metadata = json!({
            "attnscope.softmax_axis": axis.unwrap_or_default(),
            "attnscope.source": format!("{} ({})", model.checkpoint.name, spec.family),
        });
        if !selection.what_if.is_empty() {
            metadata["attnscope.what_if"] = json!(selection.what_if.join("; "));
        }
        if let Some(places) = &selection.at {
            let places: Vec<String> = places.iter().map(Place::to_string).collect();
            metadata["attnscope.at"] = json!(places.join(","));
        }
        let (direction, window) = masks_of_all(spec);
        if let Some(direction) = direction {
            metadata["attnscope.mask"] = json!(direction);
        }
        if let Some(window) = window {
            metadata["attnscope.window"] = json!(window.to_string());
        }
        // Rows sum to less than 1 then, by design.
        if (plan.layers.iter()).any(|(stack, layer_idx)| spec.has_sinks(*stack, *layer_idx)) {
            metadata["attnscope.sinks"] = json!("1");
        }
        entries.insert("__metadata__".to_owned(), metadata);
        let given = prompt.given();
        plan.add(
            &mut entries,
            "tokens".to_owned(),
            vec![given.tokens.len()],
            "I64",
        );
        if given.real.is_some() {
            plan.add(
                &mut entries,
                "attention_mask".to_owned(),
                vec![given.tokens.len()],
                "I64",
            );
        }
        if prompt.source.is_some() {
            plan.add(
                &mut entries,
                "decoder_tokens".to_owned(),
                vec![prompt.tokens.len()],
                "I64",
            );
        }
        for (stack, layer_idx) in plan.layers.clone() {
            let Some(attention) = spec.attention(stack, layer_idx) else {
                continue;
            };
            let n_queries = match stack {
                Stack::Encoder => given.tokens.len(),
                _ => prompt.tokens.len(),
            };
            let own = spec.stacks.iter().find(|own| own.stack == stack);
            let grid = given.picture.as_ref().map(|picture| picture.grid());
            let n_tokens = n_queries;
            let n_queries = own.map_or(n_tokens, |own| own.n_positions(layer_idx, n_tokens, grid));
            let n_keys = match stack {
                Stack::Cross => n_encoded(spec, prompt),
                _ => own.map_or(n_tokens, |own| {
                    let n_source = given.tokens.len();
                    own.n_keys(layer_idx, (n_tokens, n_source), grid)
                }),
            };
            let heads = match &selection.at {
                Some(places) => {
                    let is_asked = |head_idx: &usize| {
                        let holds = |place: &Place| place.holds_head(stack, layer_idx, *head_idx);
                        places.iter().any(holds)
                    };
                    (0..attention.n_heads).filter(is_asked).collect()
                }
                None => chosen("head", selection.heads.as_deref(), attention.n_heads)?,
            };
            let n_heads = heads.len();
            let d_resid = own.map_or(spec.d_model, |own| spec.d_resid(own, layer_idx));
            let block = own.and_then(|own| own.blocks().get(layer_idx));
            let d_added = block.map_or(d_resid, |block| block.d_added(d_resid));
            plan.heads.insert((stack, layer_idx), heads);
            let n_kv_heads = plan.kv_heads(stack, layer_idx, attention).len();
            let maps = spec.projections(stack, layer_idx);
            let has_value_norms = maps.is_none_or(|maps| maps.weighs_values());
            for hook in plan.hooks.clone() {
                let shape = match hook {
                    Hook::ValueNorms | Hook::Contribution if !has_value_norms => continue,
                    Hook::Scores | Hook::Pattern | Hook::Contribution => {
                        vec![n_heads, n_queries, n_keys]
                    }
                    Hook::ValueNorms => vec![n_heads, n_keys],
                    Hook::Q | Hook::RotQ => vec![n_heads, n_queries, attention.d_head],
                    Hook::Z => vec![n_heads, n_queries, attention.d_value],
                    Hook::K | Hook::RotK => vec![n_kv_heads, n_keys, attention.d_head],
                    Hook::V => vec![n_kv_heads, n_keys, attention.d_value],
                    Hook::ResidPre if own.is_some_and(|own| own.pools(layer_idx)) => {
                        let width = own.map_or(d_resid, |own| spec.d_input(own, layer_idx));
                        vec![n_queries, width]
                    }
                    Hook::ResidPre | Hook::ResidPost if stack != Stack::Cross => {
                        vec![n_queries, d_resid]
                    }
                    Hook::AttnOut | Hook::MlpOut if stack != Stack::Cross => {
                        vec![n_queries, d_added]
                    }
                    _ => continue,
                };
                plan.add(&mut entries, hook.full_name(stack, layer_idx), shape, "F32");
            }
        }
        if plan.hooks.contains(&Hook::Logits) {
            let (name, width) = match &spec.head {
                Some(head) => ("logits", head.unembed.n_out()),
                None => ("last_hidden_state", model.spec.d_hidden()),
            };
            plan.add(
                &mut entries,
                name.to_owned(),
                vec![
                    model.spec.n_last(
                        prompt.tokens.len(),
                        prompt.picture.as_ref().map(|picture| picture.grid()),
                    ),
                    width,
                ],
                "F32",
            );
            if prompt.source.is_some() {
                let shape = vec![n_encoded(spec, prompt), spec.d_memory()];
                plan.add(&mut entries, ENCODER_OUTPUT.to_owned(), shape, "F32");
            }
        }
        plan.header = header(&Value::Object(entries));
        Ok(plan)
    }

    /// Returns the chosen heads of a layer, in order.
    pub fn heads(&self, stack: Stack, layer_idx: usize) -> &[usize] {
        self.heads
            .get(&(stack, layer_idx))
            .map_or(&[], Vec::as_slice)
    }

    /// Returns the kv heads that serve the chosen heads of a layer, in order.
    pub fn kv_heads(
        &self,
        stack: Stack,
        layer_idx: usize,
        attention: &AttentionSpec,
    ) -> Vec<usize> {
        let heads = self.heads(stack, layer_idx).iter();
        let mut kv_heads: Vec<usize> = heads.map(|idx| attention.kv_head_of(*idx)).collect();
        kv_heads.dedup();
        kv_heads
    }

    /// Returns a head's row among the layer's written heads; `None` if it is not chosen.
    pub fn place_of(&self, (stack, layer_idx): (Stack, usize), head_idx: usize) -> Option<usize> {
        self.heads(stack, layer_idx).binary_search(&head_idx).ok()
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

    /// Returns the start of the file: the header with its length.
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    /// Returns the size of the whole file in bytes.
    pub fn file_len(&self) -> u64 {
        self.header.len() as u64 + self.data_len
    }
}

/// Returns the length and the padded header of a safetensors file.
fn header(entries: &Value) -> Vec<u8> {
    let mut text = entries.to_string().into_bytes();
    // The format requires tensor data to begin at a multiple of 8.
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend(text);
    bytes
}

/// Returns the direction and the window width, each only if all layers share it.
fn masks_of_all(spec: &ModelSpec) -> (Option<&'static str>, Option<usize>) {
    let blocks = || spec.stacks.iter().flat_map(StackSpec::blocks);
    let masks = || {
        blocks()
            .filter_map(BlockSpec::attention)
            .map(|own| own.mask)
    };
    // A window that ends with the query hides later keys too.
    let ends_with_it = |window: Window| {
        (0..MOST_TRIED).all(|query_idx| window.keys(query_idx, 0).end <= query_idx + 1)
    };
    let hides_later = |mask: &Mask| mask.causal || mask.window.is_some_and(ends_with_it);
    let n_causal = masks().filter(hides_later).count();
    let has_cross = spec.stacks.len() > 1;
    let direction = match n_causal {
        0 => Some("bidirectional"),
        n if n == masks().count() && !has_cross => Some("causal"),
        _ => None,
    };
    let mut widths = masks().map(|mask| mask.window.and_then(Window::width_back));
    let first = widths.next().flatten();
    (direction, first.filter(|_| widths.all(|w| w == first)))
}

/// Returns the layers of some places, in the order in which they run.
fn layers_at(spec: &ModelSpec, places: &[Place]) -> Result<Vec<(Stack, usize)>> {
    let shape = spec.shape();
    for place in places {
        place
            .within(&shape)
            .map_err(|reason| Error::Prompt(format!("--at: {reason}")))?;
        if place.query_idx.or(place.key_idx).is_some() {
            let problem =
                format!("--at {place}: a trace holds whole heads; expected no query or key");
            return Err(Error::Prompt(problem));
        }
    }
    let layers = shape.iter().flat_map(|grid| {
        let is_asked = |(layer_idx, n_heads): &(usize, &usize)| {
            let has_head = |place: &&Place| place.head_idx.is_none_or(|idx| idx < **n_heads);
            let mut asked = places.iter().filter(has_head);
            asked.any(|place| place.holds(grid.stack, *layer_idx))
        };
        let layers = grid.n_heads.iter().enumerate().filter(is_asked);
        layers
            .map(|(layer_idx, _)| (grid.stack, layer_idx))
            .collect::<Vec<_>>()
    });
    Ok(layers.collect())
}

/// Returns the chosen layers, in the order in which they run.
fn chosen_layers(
    spec: &ModelSpec,
    asked: Option<&[(Option<Stack>, usize)]>,
) -> Result<Vec<(Stack, usize)>> {
    let stacks: Vec<Stack> = spec.stacks.iter().map(|stack| stack.stack).collect();
    let asked_stacks = asked.into_iter().flatten().filter_map(|(stack, _)| *stack);
    if let Some(absent) = asked_stacks
        .into_iter()
        .find(|stack| !stacks.contains(stack))
    {
        let absent = absent.label().unwrap_or_default();
        let problem = format!("--layers: expected layers of the only stack, found {absent} layers");
        return Err(Error::Prompt(problem));
    }
    let mut layers = Vec::new();
    for grid in spec.grids() {
        // Cross-attention is part of the decoder's layers.
        let named = if grid == Stack::Cross {
            Stack::Decoder
        } else {
            grid
        };
        let of_grid = asked.map(|asked| {
            let here = asked
                .iter()
                .filter(|(stack, _)| stack.is_none_or(|s| s == named));
            here.map(|(_, layer_idx)| *layer_idx).collect::<Vec<_>>()
        });
        let what = match grid.label() {
            Some(label) => format!("{label} layer"),
            None => "layer".to_owned(),
        };
        let of_grid = chosen(&what, of_grid.as_deref(), spec.n_layers(grid))?;
        layers.extend(of_grid.into_iter().map(|layer_idx| (grid, layer_idx)));
    }
    Ok(layers)
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
