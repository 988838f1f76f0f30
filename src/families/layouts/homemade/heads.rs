//! The heads of home-made attention: their number by what names, shapes and buffers tell, and their widths.

use attnscope_checkpoint::{HEADS, Origin};
use attnscope_compute::error::Result;

use super::super::Facts;
use super::HomeMade;
use super::stack::Entry;
use super::untold::Untold;
use super::values::stated;

impl HomeMade<'_> {
    fn d_q(&self) -> usize {
        let outputs = |entry: &Entry| match (entry.n_heads, &entry.shape[..]) {
            (Some(n), [n_rows, _]) => n * n_rows,
            (None, [n, a, b]) => n * if *a == self.d_model { b } else { a },
            (None, [n_rows, n_columns]) => match self.parts.is_input_major {
                Some(true) => *n_columns,
                _ => *n_rows,
            },
            _ => 0,
        };
        match (self.parts.q, self.parts.o) {
            (Some(q), _) => outputs(q),
            (None, Some(o)) if o.shape.len() == 2 => {
                o.shape.iter().product::<usize>() / self.d_model
            }
            _ => self.d_model,
        }
    }

    fn d_k(&self) -> usize {
        let n_rows = |entry: &Entry| {
            let n: usize = entry.shape.iter().product::<usize>() * entry.n_heads.unwrap_or(1);
            n / self.d_model
        };
        match (self.parts.k, self.parts.kv, self.parts.qkv) {
            (Some(k), ..) => n_rows(k),
            (_, Some(kv), _) => n_rows(kv) / 2,
            (.., Some(qkv)) => n_rows(qkv).saturating_sub(self.d_q()) / 2,
            _ => 0,
        }
    }

    pub(super) fn heads(&self, facts: &mut Facts<'_>, untold: &mut Untold) -> Result<()> {
        let (d_q, d_k) = (self.d_q(), self.d_k());
        let query = self.parts.q.or(self.parts.qkv);
        let query = query.map_or_else(String::new, |entry| entry.first.clone());
        let mut told: Vec<(usize, Origin)> = Vec::new();
        let of = |name: &str, what: &str| Origin::Derived(format!("{what} of {name}"));
        for entry in &self.stack.layer {
            if let Some(n) = entry.n_heads {
                told.push((n, Origin::Derived("the tensors' names".to_owned())));
            } else if let ([n, _, _], true) = (&entry.shape[..], self.parts.q.is_some()) {
                told.push((*n, of(&entry.first, "shape")));
            }
        }
        if let Some(norm) = self.parts.q_norm
            && (1..d_q).contains(&norm.shape[0])
        {
            told.push((d_q / norm.shape[0], of(&norm.first, "width")));
        }
        if let Some((n, name)) = &self.buffers.slopes {
            told.push((*n, of(name, "shape")));
        }
        let is_one_head = |entry: &Entry| {
            let at = entry.words.iter().position(|word| word == "head");
            at.is_some() && entry.words.last().is_some_and(|last| last == "weight")
        };
        if !self.stack.is_numbered && self.parts.q.is_some_and(is_one_head) {
            told.push((1, Origin::Derived("the tensors' names".to_owned())));
        }
        if told.is_empty()
            && let Some((place, n)) = stated(facts, &HEADS)
        {
            told.push((n, Origin::Derived(place)));
        }
        if let (Some(rotary), true) = (&self.buffers.rotary, told.is_empty())
            && rotary.d_rotary > 0
        {
            // All dimensions of a head rotate in most models.
            let n = d_q / rotary.d_rotary;
            told.push((n, of(&rotary.name, "width")));
            untold.name("n_heads", &n.to_string());
        }
        match told.first().cloned() {
            Some((n, origin)) => {
                if let Some((other, _)) = told.iter().find(|(other, _)| *other != n) {
                    let problem = format!("{n} heads by one tensor, {other} by another");
                    return Err(facts.at(&query, problem));
                }
                facts.config.put("n_heads", n, origin);
            }
            None => facts.needed("n_heads", "n_heads", &[]),
        }
        let Some(n_heads) = facts.size("n_heads", "n_heads") else {
            return Ok(());
        };
        let d_head = d_q / n_heads;
        if d_head == 0 || !d_q.is_multiple_of(n_heads) || !d_k.is_multiple_of(d_head) {
            let problem =
                format!("{n_heads} heads do not fit {d_q} rows of queries and {d_k} of keys");
            return Err(facts.at(&query, problem));
        }
        facts.by_shape("d_head", d_head, &query, &[])?;
        facts.by_shape("n_kv_heads", d_k / d_head, &query, &[])
    }
}
