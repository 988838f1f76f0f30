//! Texts that are at hand without being given: prompts in a file beside a checkpoint, and a few built-in ones.

use std::path::{Path, PathBuf};

use attnscope_compute::error::Result;

use super::inputs::read_inputs;
use super::request::Request;

/// Name of the file beside a checkpoint.
const FILE: &str = "prompts.jsonl";

/// Ordinary prose and code, in pieces that fit short contexts. Names and things come back, so that a model can copy.
const BUILT_IN_TEXTS: &[&str] = &[
    "The ferry left the island at six in the morning, before the wind came up. Most of the people on the ferry were going to the \
     market in the harbour, with baskets of fish and vegetables. An old man sat at the back and mended a net, as he did every \
     morning. When the ferry reached the harbour, he put the net away, took his basket and walked to the market with the others.",
    "In the spring of that year the town decided to build a new bridge over the river. The old bridge was made of wood and had \
     been repaired so often that hardly a plank of it was the first. The engineer measured the river for two weeks and drew \
     three plans. The town chose the second plan, because it cost less than the first and would last longer than the third.",
    "Bread needs only four things: flour, water, salt and time. Mix the flour with the water and leave it for an hour. Then add \
     the salt, fold the dough a few times, and leave it again until it has doubled. A hot oven gives the bread its crust; a wet \
     dough gives it large holes. If the bread is heavy, the dough had too little time, and not too little yeast.",
    "Anna asked her brother whether he had seen the key to the garden shed. He said that the key was on the kitchen table, where \
     it always was. Anna looked on the kitchen table, under it and behind it, but there was no key. Then she remembered that she \
     had worn her green coat in the garden the day before, and there it was, in the pocket of the green coat.",
    "Water is heavier just above its freezing point than at it. That is why ice floats, and why a lake freezes from the top down. \
     Below the ice the water stays at about four degrees, so that fish can live there through the winter. If ice were heavier \
     than water, lakes would freeze from the bottom up, and little could live in them.",
    "def mean(values):\n    total = 0.0\n    for value in values:\n        total += value\n    return total / len(values)\n\n\n\
     def variance(values):\n    centre = mean(values)\n    total = 0.0\n    for value in values:\n        total += (value - centre) \
     ** 2\n    return total / len(values)\n\n\nif __name__ == \"__main__\":\n    values = [1.0, 2.0, 4.0, 8.0]\n    \
     print(mean(values), variance(values))\n",
];

/// The prompts of a file in a directory.
#[derive(Debug)]
pub struct PromptsBeside {
    pub path: PathBuf,
    /// By id, in the order of the file.
    pub requests: Vec<(String, Request)>,
}

impl PromptsBeside {
    /// Reads the prompts in a directory; `None` if it has no file of them. Fields that a line does not set come from `usual`.
    ///
    /// # Errors
    /// When the file cannot be read as prompts.
    pub fn of(directory: &Path, usual: &Request) -> Result<Option<Self>> {
        let path = directory.join(FILE);
        if !path.is_file() {
            return Ok(None);
        }
        let requests = read_inputs(&path, usual)?;
        Ok(Some(Self { path, requests }))
    }
}

/// The built-in texts as requests; a text that is too long for a model is cut.
pub fn built_in_texts() -> impl Iterator<Item = Request> {
    BUILT_IN_TEXTS.iter().map(|text| Request {
        truncate: true,
        ..Request::text(*text)
    })
}
