//! Text that llama.cpp's `llama-eval-callback` and `llama-debug` print: the first and last three indices of each axis of every
//! tensor, with four decimals.
//!
//! Source: `common/debug.cpp` (`ggml_debug` in earlier releases), `src/models/llama.cpp` and `src/llama-graph.cpp` for names. ggml
//! writes the fastest axis first: `{d_head, n_heads, n_tokens, 1}`. Values that were not printed are not compared, and printed ones
//! only as far as they were written.

mod said;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use attnscope_checkpoint::captured::{Captured, Printed};
use attnscope_checkpoint::{gguf, open_regular};
use attnscope_compute::error::{Error, Result};
use attnscope_forward::Hook;

use self::said::Said;
use super::modules::{Reads, Table};
use super::place::{Place, Port};
use super::{Dialect, Opened};

pub(super) static DIALECT: Dialect = Dialect {
    name: "llama.cpp's printed tensors",
    is_it,
    open,
    table: &LLAMA_CPP,
};

/// Names of llama.cpp's graph. After the rotation, queries and keys keep their names.
static LLAMA_CPP: Table = Table {
    of_layer: &[
        ("", Port::Input, Reads::Before),
        ("Qcur_rope", Port::Output, Reads::Hook(Hook::RotQ)),
        ("Kcur_rope", Port::Output, Reads::Hook(Hook::RotK)),
        ("Qcur_normed", Port::Output, Reads::Hook(Hook::Q)),
        ("Kcur_normed", Port::Output, Reads::Hook(Hook::K)),
        ("Qcur", Port::Output, Reads::Hook(Hook::Q)),
        ("Kcur", Port::Output, Reads::Hook(Hook::K)),
        ("Vcur", Port::Output, Reads::Hook(Hook::V)),
        ("kqv_out", Port::Output, Reads::Hook(Hook::Z)),
        ("attn_post_norm", Port::Output, Reads::Hook(Hook::AttnOut)),
        ("attn_out", Port::Output, Reads::Hook(Hook::AttnOut)),
        ("ffn_post_norm", Port::Output, Reads::Hook(Hook::MlpOut)),
        ("ffn_moe_out", Port::Output, Reads::Hook(Hook::MlpOut)),
        ("ffn_out", Port::Output, Reads::Hook(Hook::MlpOut)),
        ("l_out", Port::Output, Reads::Hook(Hook::ResidPost)),
    ],
    outside: &[
        ("result_output", Port::Output, Reads::Logits),
        ("", Port::Named("input.input_ids"), Reads::Tokens),
    ],
    then: None,
    example: "Qcur-0, kqv_out-0 or l_out-0",
};

/// What stands before a tensor.
const HEADERS: [&str; 2] = ["common_debug_cb_eval:", "ggml_debug:"];
/// How much of a file is searched for a tensor.
const SEARCHED: usize = 4 << 20;
/// Limit on the bytes of a line.
const LONGEST: u64 = 1 << 16;
/// Half a unit of the last printed digit, and what f32 adds to it.
const ROUNDING: f32 = 0.000_050_5;

fn is_it(path: &Path) -> bool {
    if !path.is_file() {
        return false;
    }
    let Ok(file) = open_regular(path) else {
        return false;
    };
    let mut beginning = Vec::new();
    let mut file = file.take(SEARCHED as u64);
    if file
        .by_ref()
        .take(1024)
        .read_to_end(&mut beginning)
        .is_err()
        || beginning.contains(&0)
    {
        return false;
    }
    if file.read_to_end(&mut beginning).is_err() {
        return false;
    }
    let mut lines = beginning.split(|byte| *byte == b'\n');
    lines.any(|line| std::str::from_utf8(line).is_ok_and(|line| Header::of(line).is_some()))
}

/// The line before a tensor's values.
#[derive(Debug, PartialEq, Eq)]
struct Header {
    name: String,
    op: String,
    /// Slowest axis first.
    shape: [usize; 4],
}

impl Header {
    /// Parses `common_debug_cb_eval: Qcur-0 = (f32) ROPE(…) = {12, 4, 10, 1}`.
    fn of(line: &str) -> Option<Self> {
        let rest = HEADERS.iter().find_map(|header| {
            let at = line.find(header)?;
            Some(&line[at + header.len()..])
        })?;
        let (name, rest) = rest.split_once(" = (")?;
        let (_, rest) = rest.split_once(')')?;
        let (op, _) = rest.split_once('(')?;
        let sizes = rest.trim_end().strip_suffix('}')?.rsplit_once("= {")?.1;
        let sizes: Vec<usize> = sizes
            .split(',')
            .map(|n| n.trim().parse().ok())
            .collect::<Option<_>>()?;
        let [n0, n1, n2, n3] = *sizes.as_slice() else {
            return None;
        };
        Some(Self {
            name: name.trim().to_owned(),
            op: op.trim().to_owned(),
            shape: [n3, n2, n1, n0],
        })
    }

    /// The name by module and port; `None` for tensors that ggml named itself, such as `Qcur-0 (reshaped)`.
    fn place(&self) -> Option<String> {
        if self.name.contains(' ') {
            return None;
        }
        let Some((own, layer)) = self.name.rsplit_once('-') else {
            let place = match self.name.as_str() {
                "inp_embd" | "embd" | "inp_scaled" => "layers.0:input".to_owned(),
                other => format!("{other}:output"),
            };
            return Some(place);
        };
        let layer_idx: usize = layer.parse().ok()?;
        let rope = if self.op == "ROPE" { "_rope" } else { "" };
        Some(format!("layers.{layer_idx}.{own}{rope}:output"))
    }

    /// Whether a pass begins here: all graphs begin by looking the tokens up. A run to warm up comes before the prompt, and one for
    /// each token that is written after it.
    fn begins_pass(&self) -> bool {
        self.op == "GET_ROWS" && self.place().as_deref() == Some("layers.0:input")
    }

    /// Whether the elements can be counted, with room to put other tokens before them.
    fn is_possible(&self) -> bool {
        let mut axes = self.shape.iter();
        let n = axes.try_fold(1usize, |n, axis| n.checked_mul(*axis));
        n.is_some_and(|n| n > 0 && n <= 1 << 40)
    }

    /// Whether the name of a hook stays while it is computed: a later tensor of this name is the hook.
    fn is_last(&self) -> bool {
        ["Qcur", "Kcur", "Vcur"]
            .iter()
            .any(|own| self.name.starts_with(own))
    }
}

/// A tensor with the values that were printed.
struct Listed {
    /// Slowest axis first.
    shape: [usize; 4],
    /// Row-major index and value.
    values: Vec<(usize, f32)>,
    /// The index on each axis, and how deep brackets are open.
    at: [usize; 4],
    depth: usize,
}

impl Listed {
    fn new(shape: [usize; 4]) -> Self {
        Self {
            shape,
            values: Vec::new(),
            at: [0; 4],
            depth: 0,
        }
    }

    /// Takes a line of brackets, numbers and dots; returns false for any other text.
    fn line(&mut self, line: &str) -> bool {
        let spaced = line
            .replace('[', " [ ")
            .replace(']', " ] ")
            .replace(',', " ");
        for word in spaced.split_whitespace() {
            match word {
                "[" => {
                    self.depth += 1;
                    if let Some(at) = self.at.get_mut(self.depth) {
                        *at = 0;
                    }
                }
                "]" => {
                    self.depth = self.depth.saturating_sub(1);
                    if let Some(at) = self.at.get_mut(self.depth) {
                        *at += 1;
                    }
                }
                "..." => {
                    // As many indices follow as came before.
                    if let (Some(at), Some(n)) =
                        (self.at.get_mut(self.depth), self.shape.get(self.depth))
                    {
                        *at = (*at).max(n.saturating_sub(*at));
                    }
                }
                word => {
                    let Ok(value) = word.parse::<f32>() else {
                        return false;
                    };
                    self.put(value);
                }
            }
        }
        true
    }

    fn put(&mut self, value: f32) {
        let is_inside = self.depth == 3 && self.at.iter().zip(&self.shape).all(|(at, n)| at < n);
        if is_inside {
            let flat = self
                .at
                .iter()
                .zip(&self.shape)
                .fold(0, |flat, (at, n)| flat * n + at);
            self.values.push((flat, value));
        }
        self.at[3] += 1;
    }

    /// Number of tokens, where the shape tells it: 0 for tensors that may have heads as an axis.
    fn n_tokens(&self, name: &str) -> usize {
        let of_heads = ["Qcur", "Kcur", "Vcur", "kqv"]
            .iter()
            .any(|own| name.contains(own));
        if name.contains("cur_rope:") {
            self.shape[1]
        } else if of_heads {
            0
        } else {
            self.shape[2]
        }
    }
}

/// What a text says.
#[derive(Default)]
struct Text {
    /// Tensors of the largest pass so far, and of the pass that is being read.
    tensors: BTreeMap<String, Listed>,
    now: BTreeMap<String, Listed>,
    said: Said,
}

fn open(path: &Path) -> Result<Opened> {
    let Text {
        mut tensors, said, ..
    } = read(path)?;
    let Said {
        architecture, ids, ..
    } = said;
    let alternates = architecture.as_deref().and_then(gguf::alternates_halves);
    let mut d_head = None;
    let mut n_tokens = 0;
    for (name, printed) in &tensors {
        if name.contains("cur_rope:") {
            d_head = Some(printed.shape[3]);
        }
        n_tokens = n_tokens.max(printed.n_tokens(name));
    }
    let mut arrays = Captured::empty(path);
    let names: Vec<String> = tensors.keys().cloned().collect();
    for name in names {
        let Some(mut printed) = tensors.remove(&name) else {
            continue;
        };
        let is_rotated = name.contains("Qcur") || name.contains("Kcur");
        if is_rotated {
            match (alternates, d_head) {
                (Some(true), Some(d_head)) => printed.in_halves(d_head),
                (Some(false), _) => {}
                // Without the architecture, nothing tells the order of a head's dimensions.
                _ => continue,
            }
        }
        if let Some(printed) = printed.by_token(n_tokens, name.starts_with("result_output")) {
            arrays.put(&name, printed);
        }
    }
    if ids.len() == n_tokens && n_tokens > 0 {
        arrays.put_ids(":input.input_ids", &ids);
    }
    let note = match (&architecture, alternates) {
        (None, _) => Some(
            "without queries and keys, since no line general.architecture says how heads are ordered",
        ),
        (Some(_), None) => Some("without queries and keys, since the architecture is unknown"),
        _ => None,
    };
    Ok(Opened {
        arrays,
        part: note.map(str::to_owned),
    })
}

impl Listed {
    /// Puts the dimensions of each head in the order of transformers, which pairs halves where the file pairs neighbours.
    fn in_halves(&mut self, d_head: usize) {
        if d_head < 2 || !self.shape[3].is_multiple_of(d_head) {
            return;
        }
        for (at, _) in &mut self.values {
            let inside = *at % d_head;
            *at = *at - inside + inside % 2 * (d_head / 2) + inside / 2;
        }
    }

    /// As [token, width]; `None` for another number of tokens. Logits of the last tokens alone leave the others open.
    fn by_token(mut self, n_tokens: usize, is_logits: bool) -> Option<Printed> {
        let [n3, n2, n1, n0] = self.shape;
        let (n_rows, width) = if n2 == n_tokens && n_tokens > 1 {
            (n2, n1 * n0)
        } else {
            (n2 * n1, n0)
        };
        if n3 != 1 || n_rows > n_tokens || (n_rows < n_tokens && !is_logits) {
            return None;
        }
        let n_before = (n_tokens - n_rows).checked_mul(width)?;
        self.values.iter_mut().for_each(|(at, _)| *at += n_before);
        Some(Printed {
            shape: vec![n_tokens, width],
            values: self.values,
            rounding: ROUNDING,
        })
    }
}

/// Reads the tensors of the largest pass, and what is said of the model before it.
fn read(path: &Path) -> Result<Text> {
    let cannot = |e: std::io::Error| Error::file(path, format!("cannot be read ({e})"));
    let mut lines = BufReader::new(open_regular(path).map_err(cannot)?);
    let mut text = Text::default();
    let mut now: Option<(String, Header, Listed)> = None;
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        let n_read = lines
            .by_ref()
            .take(LONGEST)
            .read_until(b'\n', &mut bytes)
            .map_err(cannot)?;
        if n_read == 0 {
            break;
        }
        let line = String::from_utf8_lossy(&bytes);
        if let Some(header) = Header::of(&line) {
            text.keep(now.take());
            if header.begins_pass() {
                text.end_pass();
            }
            let is_read = |name: &String| {
                let place = Place::parse(name);
                place.is_some_and(|place| {
                    let is_layer = place.layer_idx.is_some();
                    LLAMA_CPP
                        .reads(place.module, place.port, is_layer)
                        .is_some()
                })
            };
            let Some(name) = header.place().filter(is_read) else {
                continue;
            };
            if !header.is_possible() {
                let found = header.shape;
                let problem = format!("{name}: expected sizes of a tensor, found {found:?}");
                return Err(Error::file(path, problem));
            }
            let printed = Listed::new(header.shape);
            now = Some((name, header, printed));
        } else if let Some((_, _, printed)) = &mut now {
            if !printed.line(line.trim()) {
                text.keep(now.take());
            }
        } else {
            text.said.line(line.trim());
        }
    }
    text.keep(now);
    text.end_pass();
    Ok(text)
}

impl Text {
    /// Begins another pass; of all passes the one with the most tokens is kept, of as many the first.
    fn end_pass(&mut self) {
        let tensors = std::mem::take(&mut self.now);
        let n_tokens = |pass: &BTreeMap<String, Listed>| {
            let counts = pass.iter().map(|(name, listed)| listed.n_tokens(name));
            counts.max().unwrap_or(0)
        };
        if n_tokens(&tensors) > n_tokens(&self.tensors) {
            self.tensors = tensors;
        }
    }

    /// Keeps a tensor, unless a larger one of this name in the same pass is there.
    fn keep(&mut self, found: Option<(String, Header, Listed)>) {
        let Some((name, header, printed)) = found else {
            return;
        };
        let size = |listed: &Listed| listed.shape.iter().product::<usize>();
        let is_kept = self.now.get(&name).is_none_or(|before| {
            size(&printed) > size(before) || (size(&printed) == size(before) && header.is_last())
        });
        if is_kept {
            self.now.insert(name, printed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_parsed_from_releases_old_and_new() {
        let of = "0.12 D common_debug_cb_eval:  Qcur-3 = (f32)  ROPE(Qcur-3 (reshaped){12, 4, 10, 1}, leaf_4{10, 1, 1, 1}}) = {12, 4, 10, 1}";
        let header = Header::of(of).expect("a header");
        assert_eq!(
            (header.name.as_str(), header.op.as_str()),
            ("Qcur-3", "ROPE")
        );
        assert_eq!(header.shape, [1, 10, 4, 12]);
        assert_eq!(header.place().as_deref(), Some("layers.3.Qcur_rope:output"));
        let of = "ggml_debug:                 inp_embd = (f32)   GET_ROWS(token_embd.weight{2560, 51200, 1, 1}, inp_tokens{1, 1, 1, 1}}) = {2560, 1, 1, 1}";
        let place = Header::of(of).and_then(|header| header.place());
        assert_eq!(place.as_deref(), Some("layers.0:input"));
        let of =
            "ggml_debug: Qcur-0 (reshaped) = (f32) RESHAPE(Qcur-0{8, 1, 1, 1}, }) = {4, 2, 1, 1}";
        assert_eq!(Header::of(of).and_then(|header| header.place()), None);
        assert_eq!(Header::of("ggml_debug: x = (f32) ADD(a{1}) = {1, 2}"), None);
    }

    fn value(listed: &Listed, flat: usize) -> Option<f32> {
        let found = listed.values.iter().find(|(at, _)| *at == flat);
        found.map(|(_, value)| *value)
    }

    #[test]
    fn printed_values_stand_at_their_indices() {
        let mut listed = Listed::new([1, 1, 7, 8]);
        for line in [
            "[",
            "[",
            "[ 1.0000, 2.0000, 3.0000, ..., 6.0000, 7.0000, nan ],",
            "[ 0.5000, 0.5000, 0.5000, ..., 0.5000, 0.5000, 0.5000 ],",
            "[ 0.5000, 0.5000, 0.5000, ..., 0.5000, 0.5000, 0.5000 ],",
            "...,",
            "[ 4.0000, 0.5000, 0.5000, ..., 0.5000, 0.5000, 0.5000 ],",
        ] {
            assert!(listed.line(line), "{line}");
        }
        assert!(!listed.line("sum = 3.5"));
        let expected = [Some(1.0), Some(3.0), None, None, Some(6.0), None, Some(4.0)];
        let found = [0, 2, 3, 4, 5, 3 * 8, 4 * 8].map(|flat| value(&listed, flat));
        assert_eq!(found, expected);
        assert!(value(&listed, 7).is_some_and(f32::is_nan));
    }

    #[test]
    fn brackets_and_numbers_beyond_the_shape_are_left_out() {
        let mut listed = Listed::new([1, 1, 1, 2]);
        listed.line("[[[ 5.0 6.0 7.0 ... 8.0 ] [ 9.0 ]]] [[[ 1.0");
        assert_eq!(listed.values, [(0, 5.0), (1, 6.0)]);
        listed.line("]]]]]]]] 1.0 [[[[[[[[ 2.0");
        assert_eq!(listed.values.len(), 2);
    }

    #[test]
    fn dimensions_that_alternate_are_put_in_halves() {
        let mut listed = Listed::new([1, 1, 1, 8]);
        let values = [0.0, 2.0, 1.0, 3.0, 10.0, 12.0, 11.0, 13.0];
        listed.values = (0..8).zip(values).collect();
        listed.in_halves(4);
        let found: Vec<_> = (0..8).filter_map(|flat| value(&listed, flat)).collect();
        assert_eq!(found, [0.0, 1.0, 2.0, 3.0, 10.0, 11.0, 12.0, 13.0]);
    }
}
