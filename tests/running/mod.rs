//! Commands that must succeed: runs them on one prompt, and reads what they write.

#![allow(dead_code, reason = "each test uses a part of this")]

use serde_json::Value;

use crate::checkpoint_copy::{Copy, Weights, attnscope, take_apart, text, weights};

pub const TOKENS: &str = "5,9,2,5,9,2,200,7,7,31,5,9";

pub fn ids() -> Vec<usize> {
    TOKENS
        .split(',')
        .map(|id| id.parse().expect("an id"))
        .collect()
}

/// Runs a command that must succeed, and gives what it writes to standard output.
pub fn ran(arguments: &[&str]) -> Vec<u8> {
    let output = attnscope(arguments);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{arguments:?}: {}",
        text(&output.stderr)
    );
    output.stdout
}

pub fn report_bytes(copy: &Copy, arguments: &[&str]) -> Vec<u8> {
    let path = copy.path().to_str().expect("a path");
    ran(&[&["report", path, "--tokens", TOKENS], arguments].concat())
}

pub fn report(copy: &Copy, arguments: &[&str]) -> Value {
    serde_json::from_slice(&report_bytes(copy, arguments)).expect("JSON")
}

/// The names and metadata of a trace, and its tensors.
pub fn trace(copy: &Copy, arguments: &[&str]) -> (Value, Weights) {
    let target = copy.output("trace.safetensors");
    let path = copy.path().to_str().expect("a path");
    let to = target.to_str().expect("a path");
    ran(&[
        &["trace", path, "--tokens", TOKENS, "--output", to],
        arguments,
    ]
    .concat());
    let bytes = std::fs::read(&target).expect("reads");
    safetensors::SafeTensors::deserialize(&bytes).expect("a whole safetensors file");
    let (mut header, _) = take_apart(&bytes);
    (header["__metadata__"].take(), weights(&bytes))
}

pub const ALL_HOOKS: &str =
    "resid_pre,q,k,v,rot_q,rot_k,scores,pattern,z,attn_out,mlp_out,resid_post,logits";
