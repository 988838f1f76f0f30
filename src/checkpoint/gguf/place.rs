//! Adds the tensors of a file under Hugging Face's names, and records how to undo the converter's changes to each.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use attnscope_compute::error::{Error, Result};

use super::architectures::{Architecture, Fused, Quirk};
use super::facts::Sizes;
use super::header::StoredTensor;
use super::names::Meaning;
use crate::data_file::DataFile;
use crate::made::{ComputedTensor, Joined};
use crate::stored::Stored;
use crate::tensor_info::TensorInfo;
use crate::tensors::Tensors;

/// llama.cpp's limit on the experts of a layer. attnscope keeps one tensor description per expert.
const MOST_EXPERTS: usize = 512;

/// The tensors of a model, collected file by file.
#[derive(Debug)]
pub(super) struct Placer {
    architecture: &'static Architecture,
    sizes: Sizes,
    named: Tensors,
    path: PathBuf,
}

impl Placer {
    pub(super) fn new(architecture: &'static Architecture, sizes: Sizes) -> Self {
        Self {
            architecture,
            sizes,
            named: Tensors::default(),
            path: PathBuf::new(),
        }
    }

    /// Adds the tensors of one file.
    ///
    /// # Errors
    /// When a tensor does not have the shape that its name requires, or is repeated.
    pub(super) fn add_file(&mut self, file: DataFile, tensors: Vec<StoredTensor>) -> Result<()> {
        self.path = file.path().to_path_buf();
        self.named.files.push(file);
        tensors.into_iter().try_for_each(|tensor| self.add(tensor))
    }

    /// Returns all tensors.
    pub(super) fn finish(self) -> Tensors {
        self.named
    }

    fn insert(
        &mut self,
        in_file: &StoredTensor,
        name: String,
        shape: Vec<usize>,
        bytes: Range<usize>,
        stored: Stored,
    ) -> Result<()> {
        let info = TensorInfo {
            strides: None,
            dtype: in_file.dtype,
            shape,
            file_idx: self.named.files.len() - 1,
            bytes,
            stored,
            scales: None,
            made: None,
        };
        match self.named.index.insert(name, info) {
            None => Ok(()),
            Some(_) => Err(Error::tensor(
                &self.path,
                &in_file.name,
                "stands twice in the file",
            )),
        }
    }

    /// Adds a tensor under Hugging Face's name, and records how to undo the converter's changes.
    fn add(&mut self, tensor: StoredTensor) -> Result<()> {
        let layer = self.architecture.layer_number(&tensor.name);
        if layer.is_some_and(|layer| layer >= self.sizes.n_layers) {
            // Layers for multi-token prediction follow the others; they are ignored.
            return Ok(());
        }
        let (shape, bytes) = (tensor.shape.clone(), tensor.bytes.clone());
        match self.architecture.meaning(&tensor.name) {
            Meaning::Unknown => {
                let name = tensor.name.clone();
                self.insert(&tensor, name, shape, bytes, Stored::AsIs)
            }
            Meaning::Whole { name, part } => self.add_whole(&tensor, name, part),
            Meaning::Experts { before, after } if self.architecture.has(Quirk::StacksExperts) => {
                let after = after.trim_start_matches('.').trim_end_matches(".weight");
                self.stack_experts(&tensor, format!("{before}{after}"))
            }
            Meaning::Experts { before, after } => self.add_experts(&tensor, &before, &[&after]),
            Meaning::GatedExperts { before, after } => {
                self.add_experts(&tensor, &before, &after.each_ref().map(String::as_str))
            }
        }
    }

    fn add_whole(&mut self, tensor: &StoredTensor, name: String, part: &str) -> Result<()> {
        let mut shape = tensor.shape.clone();
        match part {
            "attn_qkv" if self.architecture.fused == Fused::Apart => {
                return self.add_apart(tensor, &name);
            }
            "attn_q_norm" | "attn_k_norm" if self.architecture.has(Quirk::NormPerHead) => {
                return self.add_head_norms(tensor, &name);
            }
            "altup_proj" | "altup_unembd_proj" => return self.add_streams(tensor, &name),
            // Hugging Face's convolutions have an extra axis for the single input channel.
            "shortconv.conv" if shape.len() == 2 => shape.insert(1, 1),
            "ssm_conv1d" if shape.len() == 2 => shape.insert(1, 1),
            // The file adds an axis of length 1 after the heads of `ssm_a` and `ssm_d`, and an axis of groups to `ssm_norm`.
            "ssm_a" | "ssm_d"
                if shape.len() == 2 && !self.architecture.has(Quirk::DecaysByChannel) =>
            {
                shape = vec![shape.iter().product()];
            }
            "ssm_norm" => shape = vec![shape.iter().product()],
            "exp_probs_b" if self.architecture.has(Quirk::BiasIsRow) => shape.insert(0, 1),
            _ => {}
        }
        let stored = self.stored(tensor, part, &name, &shape)?;
        if stored == Stored::Transposed {
            shape.reverse();
        }
        self.insert(tensor, name, shape, tensor.bytes.clone(), stored)
    }

    /// Splits a fused tensor of queries, keys and values into three.
    fn add_apart(&mut self, tensor: &StoredTensor, name: &str) -> Result<()> {
        let Sizes {
            n_heads,
            n_kv_heads,
            d_head,
            ..
        } = self.sizes;
        // Sizes were limited to 2²⁶ when they were read.
        let rows = [n_heads, n_kv_heads, n_kv_heads].map(|n| (n * d_head) as usize);
        let n_rows = tensor.shape[0];
        if rows.iter().sum::<usize>() != n_rows {
            let problem =
                format!("expected {rows:?} rows of queries, keys and values, found {n_rows}");
            return Err(Error::tensor(&self.path, &tensor.name, problem));
        }
        let n_bytes = tensor.bytes.len() / n_rows;
        let mut start = tensor.bytes.start;
        for (part, n_rows) in ["q", "k", "v"].into_iter().zip(rows) {
            let mut shape = tensor.shape.clone();
            shape[0] = n_rows;
            let bytes = start..start + n_rows * n_bytes;
            start = bytes.end;
            let name = name.replace("qkv_proj", &format!("{part}_proj"));
            let stored = self.stored(tensor, &format!("attn_{part}"), &name, &shape)?;
            self.insert(tensor, name, shape, bytes, stored)?;
        }
        Ok(())
    }

    /// Splits a tensor of one norm per head into one tensor per head.
    fn add_head_norms(&mut self, tensor: &StoredTensor, name: &str) -> Result<()> {
        if tensor.shape.len() != 2 {
            let problem = format!("expected one row per head, found shape {:?}", tensor.shape);
            return Err(Error::tensor(&self.path, &tensor.name, problem));
        }
        let (stem, ending) = name.rsplit_once('.').unwrap_or((name, "weight"));
        self.add_each(tensor, |head| format!("{stem}.norms.{head}.{ending}"))
    }

    /// Splits a tensor of one projection per residual stream into one tensor per stream.
    fn add_streams(&mut self, tensor: &StoredTensor, name: &str) -> Result<()> {
        const MOST_STREAMS: usize = 64;
        let n_streams = tensor.shape.first().copied().unwrap_or(0);
        if tensor.shape.len() != 3 || n_streams > MOST_STREAMS {
            let shape = &tensor.shape;
            let problem = format!("expected a map for each stream, found shape {shape:?}");
            return Err(Error::tensor(&self.path, &tensor.name, problem));
        }
        let (stem, ending) = name.rsplit_once('.').unwrap_or((name, "weight"));
        self.add_each(tensor, |stream| format!("{stem}.{stream}.{ending}"))
    }

    /// Adds each index of the first axis as a separate tensor.
    fn add_each(&mut self, tensor: &StoredTensor, name: impl Fn(usize) -> String) -> Result<()> {
        let (n, shape) = (tensor.shape[0], tensor.shape[1..].to_vec());
        let n_bytes = tensor.bytes.len() / n.max(1);
        for idx in 0..n {
            let start = tensor.bytes.start + idx * n_bytes;
            let bytes = start..start + n_bytes;
            self.insert(tensor, name(idx), shape.clone(), bytes, Stored::AsIs)?;
        }
        Ok(())
    }

    /// Adds one tensor per expert and projection; projections in the same tensor have equal shares of its rows.
    fn add_experts(&mut self, tensor: &StoredTensor, before: &str, after: &[&str]) -> Result<()> {
        let shape = &tensor.shape;
        // Biases have one row per expert.
        let (n_experts, mut of_one) = match shape[..] {
            [n_experts, n_out, n_in] => (n_experts, vec![n_out, n_in]),
            [n_experts, n_out] if tensor.name.ends_with(".bias") => (n_experts, vec![n_out]),
            _ => {
                let problem = format!("expected one matrix per expert, found shape {shape:?}");
                return Err(Error::tensor(&self.path, &tensor.name, problem));
            }
        };
        if n_experts > MOST_EXPERTS {
            let problem = format!("expected at most {MOST_EXPERTS} experts, found {n_experts}");
            return Err(Error::tensor(&self.path, &tensor.name, problem));
        }
        if !of_one[0].is_multiple_of(after.len()) {
            let problem = format!(
                "expected rows for {} maps, found {}",
                after.len(),
                of_one[0]
            );
            return Err(Error::tensor(&self.path, &tensor.name, problem));
        }
        of_one[0] /= after.len();
        let n_bytes = tensor.bytes.len() / n_experts / after.len();
        let mut start = tensor.bytes.start;
        for expert in 0..n_experts {
            for after in after {
                let name = format!("{before}{expert}{after}");
                let bytes = start..start + n_bytes;
                start = bytes.end;
                self.insert(tensor, name, of_one.clone(), bytes, Stored::AsIs)?;
            }
        }
        Ok(())
    }

    /// Adds a projection's experts as one matrix, stacked by rows; down projections are stored transposed.
    fn stack_experts(&mut self, tensor: &StoredTensor, name: String) -> Result<()> {
        let [n_experts, n_out, n_in] = tensor.shape[..] else {
            let problem = format!(
                "expected one matrix per expert, found shape {:?}",
                tensor.shape
            );
            return Err(Error::tensor(&self.path, &tensor.name, problem));
        };
        if !name.ends_with(".w2") {
            let shape = vec![n_experts * n_out, n_in];
            return self.insert(tensor, name, shape, tensor.bytes.clone(), Stored::AsIs);
        }
        let shape = vec![n_experts * n_in, n_out];
        self.insert(
            tensor,
            name.clone(),
            shape,
            tensor.bytes.clone(),
            Stored::AsIs,
        )?;
        let Some(info) = self.named.index.get_mut(&name) else {
            return Ok(());
        };
        let n_bytes = tensor.bytes.len() / n_experts;
        let part = |expert: usize| {
            let start = tensor.bytes.start + expert * n_bytes;
            TensorInfo {
                shape: vec![n_in, n_out],
                bytes: start..start + n_bytes,
                stored: Stored::Transposed,
                ..info.clone()
            }
        };
        let parts = (0..n_experts).map(part).collect();
        info.made = Some(Arc::new(ComputedTensor::Joined(Joined::along(0, parts))));
        Ok(())
    }

    /// Determines how the converter changed a tensor, and checks that its shape allows it.
    fn stored(
        &self,
        tensor: &StoredTensor,
        part: &str,
        name: &str,
        shape: &[usize],
    ) -> Result<Stored> {
        let (architecture, sizes) = (self.architecture, self.sizes);
        let is_in_order = architecture.has(Quirk::BiasesInOrder) && name.ends_with(".bias");
        let halves_alternate = architecture.has(Quirk::HalvesAlternate) && !is_in_order;
        let neighbours_apart = architecture.has(Quirk::NeighboursApart);
        let is_reordered = halves_alternate || neighbours_apart;
        let n_heads = match part {
            "attn_q" if is_reordered => Some(sizes.n_heads),
            "attn_k" if is_reordered => Some(sizes.n_kv_heads),
            _ => None,
        };
        if let Some(n_heads) = n_heads {
            // Sizes were limited to 2²⁶ when they were read.
            let (n_rows, n_heads) = (shape[0], n_heads as usize);
            if !n_rows.is_multiple_of(2 * n_heads) {
                let problem =
                    format!("expected rows for {n_heads} heads of an even width, found {n_rows}");
                return Err(Error::tensor(&self.path, &tensor.name, problem));
            }
            let d_head = n_rows / n_heads;
            return Ok(if neighbours_apart {
                let d_rotary = (sizes.d_rotary as usize).min(d_head);
                Stored::NeighboursApart { d_head, d_rotary }
            } else {
                Stored::HalvesAlternate { d_head }
            });
        }
        if part == "attn_qkv" && architecture.fused == Fused::ByGroups {
            return self.by_groups(tensor, shape[0]);
        }
        if part == "ssm_a" {
            return Ok(Stored::NegativeExp);
        }
        let is_norm = part != "ssm_norm" && name.ends_with("norm.weight");
        if is_norm && architecture.has(Quirk::NormsPlusOne) {
            return Ok(Stored::Plus(1.0));
        }
        let is_linear = ["attn_qkv", "attn_output", "ffn_up", "ffn_down"].contains(&part);
        let is_transposed = is_linear && shape.len() == 2 && architecture.has(Quirk::Transposed);
        Ok(if is_transposed {
            Stored::Transposed
        } else {
            Stored::AsIs
        })
    }

    /// Describes a fused tensor of all queries, keys and values whose rows Hugging Face groups by shared key.
    fn by_groups(&self, tensor: &StoredTensor, n_rows: usize) -> Result<Stored> {
        let [n_heads, n_kv_heads, d_head] = {
            let Sizes {
                n_heads,
                n_kv_heads,
                d_head,
                ..
            } = self.sizes;
            [n_heads, n_kv_heads, d_head].map(|size| size as usize)
        };
        if n_rows != (n_heads + 2 * n_kv_heads) * d_head || !n_heads.is_multiple_of(n_kv_heads) {
            let problem = format!(
                "expected rows for {n_heads} queries and {n_kv_heads} keys and values of width {d_head}, found {n_rows}"
            );
            return Err(Error::tensor(&self.path, &tensor.name, problem));
        }
        Ok(Stored::GroupsApart {
            n_groups: n_kv_heads,
            n_shared: n_heads / n_kv_heads,
            d_head,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Builds a placer for any file; its contents are not read.
    fn placer(architecture: &str, sizes: [u64; 3]) -> Placer {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let [n_heads, n_kv_heads, d_head] = sizes;
        let sizes = Sizes {
            n_layers: 2,
            d_model: 8,
            n_heads,
            n_kv_heads,
            d_head,
            d_rotary: d_head,
        };
        let architecture = Architecture::named(architecture).expect("a known architecture");
        let mut placer = Placer::new(architecture, sizes);
        let file = DataFile::open(&path).expect("opens");
        placer.add_file(file, Vec::new()).expect("nothing to add");
        placer
    }

    fn tensor(name: &str, shape: &[usize]) -> StoredTensor {
        let n_bytes = 4 * shape.iter().product::<usize>();
        StoredTensor {
            name: name.to_owned(),
            dtype: crate::Dtype::F32,
            shape: shape.to_vec(),
            bytes: 100..100 + n_bytes,
        }
    }

    #[test]
    fn a_fused_qkv_tensor_is_split_by_rows() {
        let mut placer = placer("chatglm", [4, 2, 3]);
        let fused = tensor("blk.0.attn_qkv.weight", &[24, 8]);
        placer.add(fused).expect("fits");
        let index = placer.finish().index;
        let bytes = |part: &str| {
            let info = &index[&format!("model.layers.0.self_attn.{part}_proj.weight")];
            (info.shape.clone(), info.bytes.clone())
        };
        assert_eq!(bytes("q"), (vec![12, 8], 100..484));
        assert_eq!(bytes("k"), (vec![6, 8], 484..676));
        assert_eq!(bytes("v"), (vec![6, 8], 676..868));
    }

    #[test]
    fn stacked_gate_and_up_projections_are_split_for_each_expert() {
        let mut placer = placer("glm4moe", [4, 2, 2]);
        let fused = tensor("blk.1.ffn_gate_up_exps.weight", &[3, 10, 8]);
        placer.add(fused).expect("fits");
        let index = placer.finish().index;
        let place = |name: &str| {
            let info = &index[&format!("model.layers.1.mlp.experts.{name}.weight")];
            assert_eq!(info.shape, [5, 8]);
            info.bytes.start
        };
        assert_eq!(place("0.gate_proj"), 100);
        assert_eq!(place("0.up_proj"), 100 + 5 * 8 * 4);
        assert_eq!(place("2.up_proj"), 100 + 5 * 5 * 8 * 4);
    }

    #[test]
    fn layers_beyond_the_last_are_ignored_and_odd_shapes_refused() {
        let mut placer = placer("glm4moe", [4, 2, 2]);
        let further = tensor("blk.2.nextn.eh_proj.weight", &[8, 16]);
        placer.add(further).expect("left out");
        assert!(placer.named.index.is_empty());
        for (name, shape) in [
            ("blk.0.attn_qkv.weight", vec![24, 8]),
            ("blk.0.ffn_gate_up_exps.weight", vec![3, 9, 8]),
            ("blk.0.ffn_up_exps.weight", vec![9, 8]),
        ] {
            assert!(placer.add(tensor(name, &shape)).is_err(), "{name}");
        }
    }
}
