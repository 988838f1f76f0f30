//! The forms in which servers are asked for the log-probabilities of a prompt.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use attnscope_report::read_logprobs_text;
use attnscope_system::ask::{NoAnswer, ask};
use serde_json::{Value, json};

use super::{Api, Args};

/// Added to the logit of a token that has to be written. llama.cpp gives log-probabilities of the logits before it.
const FORCE: f64 = 1e6;

/// A server, and the form of request that it answered last.
pub(super) struct Server<'a> {
    args: &'a Args,
    base: String,
    key: Option<String>,
    form: Option<usize>,
}

/// How a prompt is asked for.
enum Form {
    /// One request to an address.
    Whole(String, Value),
    /// llama.cpp's server, which gives log-probabilities only of what it writes: behind each beginning of the prompt it is made to
    /// write the next token. The beginnings are in its cache, so each request computes one token.
    ByToken(String),
}

/// Why a form gave nothing.
enum Refusal {
    Refused(String),
    Failed(anyhow::Error),
}

impl<'a> Server<'a> {
    pub fn new(args: &'a Args, base: String) -> Self {
        let key = std::env::var("ATTNSCOPE_API_KEY").ok();
        Self {
            args,
            base,
            key: key.filter(|key| !key.is_empty()),
            form: None,
        }
    }

    /// The forms of a request, the most telling first: with ids in the answer, the plain one, SGLang's own, llama.cpp's own.
    fn forms(&self, ids: &[u32]) -> Vec<Form> {
        let args = self.args;
        let given = args.checkpoint.display().to_string();
        let model = args.model.as_deref().unwrap_or(&given);
        let plain = json!({
            "model": model, "prompt": ids, "max_tokens": 1, "temperature": 0, "echo": true, "logprobs": args.top,
        });
        let mut telling = plain.clone();
        for (key, value) in [
            ("prompt_logprobs", json!(args.top)),
            ("return_token_ids", json!(true)),
            ("return_tokens_as_token_ids", json!(true)),
            ("add_special_tokens", json!(false)),
        ] {
            telling[key] = value;
        }
        let own = json!({
            "input_ids": ids, "return_logprob": true, "logprob_start_len": 0, "top_logprobs_num": args.top,
            "sampling_params": {"max_new_tokens": 1, "temperature": 0},
        });
        let at = |path: &str| format!("{}{path}", self.base);
        let openai = at("/v1/completions");
        let all = [
            (Api::Openai, Form::Whole(openai.clone(), telling)),
            (Api::Openai, Form::Whole(openai, plain)),
            (Api::Sglang, Form::Whole(at("/generate"), own)),
            (Api::LlamaCpp, Form::ByToken(at("/completion"))),
        ];
        let is_asked = |api: Api| args.api.is_none_or(|asked| asked == api);
        let asked = all.into_iter().filter(|(api, _)| is_asked(*api));
        asked.map(|(_, form)| form).collect()
    }

    /// Asks for the log-probabilities of some ids, in the first form that the server takes.
    pub fn logprobs(&mut self, ids: &[u32]) -> Result<String> {
        let mut refusals = Vec::new();
        for (idx, form) in self.forms(ids).iter().enumerate() {
            if self.form.is_some_and(|form| form != idx) {
                continue;
            }
            let answer = match form {
                Form::Whole(url, body) => self.whole(url, body, ids.len()),
                Form::ByToken(url) => self.by_token(url, ids),
            };
            match answer {
                Ok(text) => {
                    self.form = Some(idx);
                    return Ok(text);
                }
                Err(Refusal::Refused(why)) => refusals.push(why),
                Err(Refusal::Failed(problem)) => return Err(problem),
            }
        }
        bail!(
            "{}: expected log-probabilities of a prompt, found none: {}. llama-cpp-python needs logits_all=True, vLLM --max-logprobs",
            self.args.url,
            refusals.join("; ")
        )
    }

    fn ask(&self, url: &str, body: &Value) -> Result<String, Refusal> {
        let patience = Duration::from_secs(self.args.timeout);
        ask(url, body, self.key.as_deref(), patience).map_err(|none| match none {
            NoAnswer::Refused(status, words) => {
                Refusal::Refused(format!("{url} answers with status {status}: {words}"))
            }
            NoAnswer::Failed(problem) => {
                Refusal::Failed(anyhow::anyhow!("{url}: cannot be asked ({problem})"))
            }
        })
    }

    /// One request, whose answer has to have all of the prompt's tokens but the first.
    fn whole(&self, url: &str, body: &Value, n_tokens: usize) -> Result<String, Refusal> {
        let text = self.ask(url, body)?;
        let read = read_logprobs_text(Path::new(url), &text, None);
        let mut prompts = read.into_iter().flat_map(|table| table.prompts);
        if n_tokens < 2 || prompts.any(|prompt| prompt.n_scored() + 1 >= n_tokens) {
            return Ok(text);
        }
        let why = format!("{url} answers without log-probabilities of the prompt");
        Err(Refusal::Refused(why))
    }

    /// A request for each token; the answers together, in the form of one.
    fn by_token(&self, url: &str, ids: &[u32]) -> Result<String, Refusal> {
        let mut tokens: Vec<Value> = ids.iter().take(1).map(|id| json!({"id": id})).collect();
        for (n, id) in ids.iter().enumerate().skip(1) {
            let mut body = json!({
                "prompt": ids[..n], "n_predict": 1, "temperature": 0, "n_probs": self.args.top, "cache_prompt": true,
                "logit_bias": [[id, FORCE]],
            });
            if let Some(model) = &self.args.model {
                body["model"] = json!(model);
            }
            let text = self.ask(url, &body)?;
            let answer: Value = serde_json::from_str(&text).unwrap_or_default();
            let written = &answer["completion_probabilities"][0];
            let found = &written["id"];
            let n_run = &answer["tokens_evaluated"];
            let problem = if !written["logprob"].is_number() {
                "answers without log-probabilities".to_owned()
            } else if *found != *id {
                format!("was made to write token {id}, found {found}")
            } else if n_run.is_number() && *n_run != n {
                format!("ran {n_run} tokens, expected the {n} that were sent")
            } else {
                tokens.push(written.clone());
                continue;
            };
            return Err(Refusal::Refused(format!("{url} {problem}")));
        }
        Ok(json!({"completion_probabilities": tokens}).to_string())
    }
}
