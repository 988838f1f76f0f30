//! Whole distributions as safetensors, written row by row as they are computed.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};

/// Writes `PROMPT/ids` [position], i64, and `PROMPT/logprobs` [position, d_vocab], f32: row i has ln p of every token that may stand at
/// i + 1. A single prompt's names have no prefix.
pub struct FullWriter<'a> {
    file: BufWriter<&'a File>,
}

/// Longest name of a prompt in a file.
const LONGEST_NAME: usize = 200;

impl<'a> FullWriter<'a> {
    /// Writes the header; rows follow in the order of prompts.
    ///
    /// # Errors
    /// When the file cannot be written, or two prompts have one name.
    pub fn new(file: &'a File, prompts: &[(String, Vec<u32>)], d_vocab: usize) -> io::Result<Self> {
        let mut at = 0;
        let mut infos = Vec::new();
        let mut add = |name: String, dtype: Dtype, shape: Vec<usize>, n_bytes: usize| {
            let info = TensorInfo {
                dtype,
                shape,
                data_offsets: (at, at + n_bytes),
            };
            at += n_bytes;
            infos.push((name, info));
        };
        let is_only = prompts.len() == 1;
        let name = |prompt: &str, part: &str| {
            let prompt: String = prompt.chars().take(LONGEST_NAME).collect();
            if is_only {
                part.to_owned()
            } else {
                format!("{prompt}/{part}")
            }
        };
        // Ids of 8 bytes come first, so that everything is aligned.
        for (prompt, ids) in prompts {
            add(
                name(prompt, "ids"),
                Dtype::I64,
                vec![ids.len()],
                8 * ids.len(),
            );
        }
        for (prompt, ids) in prompts {
            add(
                name(prompt, "logprobs"),
                Dtype::F32,
                vec![ids.len(), d_vocab],
                4 * ids.len() * d_vocab,
            );
        }
        let metadata = Metadata::new(None, infos).map_err(io::Error::other)?;
        let mut header = serde_json::to_vec(&metadata)?;
        header.resize(header.len().next_multiple_of(8), b' ');
        let mut file = BufWriter::new(file);
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(&header)?;
        for id in prompts.iter().flat_map(|(_, ids)| ids) {
            file.write_all(&i64::from(*id).to_le_bytes())?;
        }
        Ok(Self { file })
    }

    /// Writes the next row. // [d_vocab]
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn row(&mut self, logprobs: &[f32]) -> io::Result<()> {
        self.file.write_all(bytemuck::cast_slice(logprobs))
    }

    /// Writes what is still buffered.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn finish(mut self) -> io::Result<()> {
        self.file.flush()
    }
}
