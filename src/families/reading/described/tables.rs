//! Reads the values of `[tensors]`: tables, maps, fused maps and norms.

use serde_json::{Map, Value};

use super::parts::{FUSED, FusedPart, MapPart, NormPart, word};
use super::{Mlp, Qkv};

/// The name of a table once its axes are exchanged.
fn turned_name(name: &str) -> String {
    format!("{name} (column row)")
}

/// Reader of the `[tensors]` tables.
pub struct Tables<'a> {
    pub values: &'a Map<String, Value>,
    /// The key of the table that they are in, with a dot; empty for `[tensors]` itself.
    pub within: &'static str,
}

impl Tables<'_> {
    /// # Errors
    /// When the value is not valid for the key, with the problem; the same holds for the methods below.
    pub fn map(&self, key: &'static str) -> Result<Option<MapPart>, String> {
        self.read(key, MapPart::read)
    }

    pub fn norm(&self, key: &'static str) -> Result<Option<NormPart>, String> {
        self.read(key, NormPart::read)
    }

    pub fn fused(
        &self,
        key: &'static str,
        parts: &[&'static str],
    ) -> Result<Option<FusedPart>, String> {
        debug_assert!(parts.iter().all(|part| FUSED.contains(part)));
        self.read(key, |value| FusedPart::read(value, parts))
    }

    /// The maps of queries, keys and values: fused, apart, or keys fused with values.
    pub fn qkv(&self) -> Result<Qkv, String> {
        let [q, k, v] = [self.map("q")?, self.map("k")?, self.map("v")?];
        let kv = self.fused("kv", &["k", "v"])?;
        let fused = self.fused("qkv", &["q", "k", "v"])?;
        match (fused, q, kv, k, v) {
            (Some(fused), None, None, None, None) => Ok(Qkv::Fused(fused)),
            (None, Some(q), Some(kv), None, None) => Ok(Qkv::Paired(q, kv)),
            (None, Some(q), None, Some(k), Some(v)) => Ok(Qkv::Separate([q, k, v])),
            _ => {
                let [qkv, q, kv, k, v] =
                    ["qkv", "q", "kv", "k", "v"].map(|key| format!("{}{key}", self.within));
                Err(format!(
                    "expected {qkv}, or {q} and {kv}, or {q}, {k} and {v}"
                ))
            }
        }
    }

    /// The first maps of a feed-forward layer under these keys: up, gate and up, or both in one tensor; `None` without any.
    pub fn mlp(&self, [up, gate, gate_up]: [&'static str; 3]) -> Result<Option<Mlp>, String> {
        let fused = self.fused(gate_up, &["gate", "up"])?;
        match (fused, self.map(gate)?, self.map(up)?) {
            (Some(fused), None, None) => Ok(Some(Mlp::Fused(fused))),
            (None, Some(gate), Some(up)) => Ok(Some(Mlp::Gated(gate, up))),
            (None, None, Some(up)) => Ok(Some(Mlp::Plain(up))),
            (None, None, None) => Ok(None),
            _ => {
                let [up, gate, gate_up] =
                    [up, gate, gate_up].map(|key| format!("{}{key}", self.within));
                Err(format!("expected {up}, or {gate} and {up}, or {gate_up}"))
            }
        }
    }

    /// The name of a table with one row per id; the name that it has once turned, if it is stored with one column per id.
    pub fn table(&self, key: &'static str) -> Result<Option<String>, String> {
        self.read(key, |value| {
            let Some(table) = value.as_object() else {
                let name = value.as_str().map(str::to_owned);
                return name
                    .ok_or_else(|| format!("expected a tensor's name or a table, found {value}"));
            };
            let weight =
                word(table, "weight")?.ok_or("expected weight in the table, found none")?;
            match word(table, "axes")?.as_deref() {
                None | Some("row column") => Ok(weight),
                Some("column row") => Ok(turned_name(&weight)),
                Some(other) => Err(format!(
                    "axes: expected row column or column row, found {other:?}"
                )),
            }
        })
    }

    /// Tables that are stored with one column per id: their stored names, and their names once turned.
    pub fn turned(&self) -> Result<Vec<(String, String)>, String> {
        let mut turned = Vec::new();
        for key in ["tokens", "positions", "token_types"] {
            let stored = self.values.get(key).and_then(|value| value.get("weight"));
            if let (Some(name), Some(stored)) = (self.table(key)?, stored.and_then(Value::as_str))
                && name != stored
            {
                turned.push((stored.to_owned(), name));
            }
        }
        Ok(turned)
    }

    fn read<T>(
        &self,
        key: &'static str,
        read: impl Fn(&Value) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        let value = self.values.get(key);
        let within = self.within;
        let said = |problem| format!("{within}{key}: {problem}");
        let read = value.map(|value| read(value).map_err(said));
        read.transpose()
    }
}
