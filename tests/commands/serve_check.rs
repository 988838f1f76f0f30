//! `attnscope serve-check` against a small server with planted faults.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::thread;

use serde_json::{Value, json};
use testing::checkpoint_copy::{attnscope, text};

fn fixture(name: &str) -> PathBuf {
    testing::root().join("fixtures/logprobs").join(name)
}

/// How a server answers a request: path and body to status and document.
type Answers = fn(&str, &Value) -> (u16, String);

/// Serves a few requests on the loopback; its address.
fn serve(answers: Answers) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming().take(1024) {
            let Ok(stream) = stream else { return };
            let _ = answer(stream, answers);
        }
    });
    format!("http://{address}")
}

fn answer(mut stream: TcpStream, answers: Answers) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut n_bytes = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            n_bytes = value.trim().parse().unwrap_or(0);
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; n_bytes];
    reader.read_exact(&mut body)?;
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let path = first.split_whitespace().nth(1).unwrap_or_default();
    let (status, document) = answers(path, &body);
    write!(
        stream,
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{document}",
        document.len()
    )
}

/// The values of a side of `fixtures/logprobs` for the ids that a request has.
fn values(side: &str, ids: &Value) -> Vec<Value> {
    let lines = std::fs::read_to_string(fixture(side)).expect("a side");
    let rows = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let row = rows
        .into_iter()
        .find(|row| row["ids"] == *ids)
        .expect("ids of the side");
    row["logprobs"].as_array().expect("values").clone()
}

fn echo(side: &str, body: &Value) -> String {
    let ids = body["prompt"].as_array().expect("ids");
    let pieces: Vec<String> = ids.iter().map(|id| format!("token_id:{id}")).collect();
    json!({"choices": [{"logprobs": {"tokens": pieces, "token_logprobs": values(side, &body["prompt"])}}]}).to_string()
}

/// Runs the check on the prompts of the fixtures.
fn checked(url: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    let directory = tempfile::tempdir().expect("a directory");
    let inputs = directory.path().join("inputs.jsonl");
    let lines = std::fs::read_to_string(fixture("llama.same.jsonl")).expect("a side");
    let rows = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let prompts: Vec<String> = rows
        .map(|row| json!({"id": row["id"], "tokens": row["ids"]}).to_string())
        .collect();
    std::fs::write(&inputs, prompts.join("\n")).expect("writes");
    let model = fixture("llama");
    let command = [
        "serve-check",
        url,
        "--quiet",
        "--checkpoint",
        model.to_str().expect("a path"),
        "--inputs",
        inputs.to_str().expect("a path"),
    ];
    let output = attnscope(&[&command[..], arguments].concat());
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[test]
fn a_server_that_serves_the_checkpoint_agrees() {
    let url = serve(|_, body| (200, echo("llama.same_bf16.jsonl", body)));
    let (code, said, problem) = checked(&url, &[]);
    assert_eq!(code, Some(0), "{said} {problem}");
    assert!(
        said.starts_with("A agrees with the reference") && said.contains("bf16"),
        "{said}"
    );
}

#[test]
fn a_fault_of_a_server_is_named() {
    let url = serve(|_, body| (200, echo("llama.window_bf16.jsonl", body)));
    let (code, said, _) = checked(&format!("{url}/v1/"), &["--format", "json"]);
    assert_eq!(code, Some(1));
    let found: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(
        found["sides"]["a"]["cause"]["reading"],
        "a window of 32 keys"
    );
    assert_eq!(found["sides"]["a"]["cause"]["first"]["position"], 33);
}

#[test]
fn a_strict_server_is_asked_plainly_and_sglang_in_its_own_way() {
    // Unknown fields are refused; the answer has texts in place of ids.
    let url = serve(|_, body| {
        if body.get("prompt_logprobs").is_some() {
            return (400, json!({"error": "unknown field"}).to_string());
        }
        let pieces = vec!["x"; body["prompt"].as_array().expect("ids").len()];
        let own = values("llama.same.jsonl", &body["prompt"]);
        (
            200,
            json!({"choices": [{"logprobs": {"tokens": pieces, "token_logprobs": own}}]})
                .to_string(),
        )
    });
    assert_eq!(checked(&url, &[]).0, Some(0));
    let url = serve(|path, body| {
        if path != "/generate" {
            return (404, "{}".to_owned());
        }
        let ids = body["input_ids"].as_array().expect("ids").iter();
        let own = values("llama.restart.jsonl", &body["input_ids"]);
        let triples: Vec<Value> = ids
            .zip(own)
            .map(|(id, value)| json!([value, id, null]))
            .collect();
        (200, json!({"text": "", "meta_info": {"input_token_logprobs": triples, "output_token_logprobs": []}}).to_string())
    });
    let (code, said, _) = checked(&url, &[]);
    assert_eq!(code, Some(1));
    assert!(
        said.contains("positions that begin again at token 64"),
        "{said}"
    );
}

#[test]
fn a_server_that_adds_a_token_is_told_apart_from_one_that_departs() {
    let url = serve(|_, body| {
        let ids = body["prompt"].as_array().expect("ids");
        let twice: Vec<Value> = [json!(1)].into_iter().chain(ids.iter().cloned()).collect();
        let own = values("llama.twice_first.jsonl", &Value::Array(twice.clone()));
        let pieces: Vec<String> = twice.iter().map(|id| format!("token_id:{id}")).collect();
        (
            200,
            json!({"choices": [{"logprobs": {"tokens": pieces, "token_logprobs": own}}]})
                .to_string(),
        )
    });
    let (code, said, _) = checked(&url, &[]);
    assert_eq!(code, Some(1));
    assert!(
        said.starts_with("prompt p0: A has 1 token more in front than B"),
        "{said}"
    );
    assert!(said.contains("A agrees with the reference"), "{said}");
}

#[test]
fn a_server_that_does_not_answer_is_one_line() {
    let url = serve(|_, _| (200, json!({"choices": [{"text": "hello"}]}).to_string()));
    let (code, _, problem) = checked(&url, &[]);
    assert_eq!((code, problem.lines().count()), (Some(2), 1), "{problem}");
    assert!(
        problem.contains("without log-probabilities of the prompt"),
        "{problem}"
    );
    let url = serve(|_, _| (500, "x".repeat(5000)));
    let (code, _, problem) = checked(&url, &[]);
    assert!(
        code == Some(2) && problem.contains("status 500") && problem.len() < 2000,
        "{problem}"
    );
    let (code, _, problem) = checked("http://127.0.0.1:9", &[]);
    assert!(
        code == Some(2) && problem.contains("cannot be asked"),
        "{problem}"
    );
    assert_eq!(checked("127.0.0.1", &[]).0, Some(2));
}

/// What llama.cpp's server answers (build 11669): nothing of the prompt, and of what it writes the log-probability before the bias.
fn as_llama_cpp(path: &str, body: &Value) -> (u16, String) {
    match path {
        "/v1/completions" => {
            let written = json!({"id": 23, "token": "x", "bytes": [120], "logprob": -0.145, "top_logprobs": []});
            let choice = json!({"text": "x", "index": 0, "logprobs": {"content": [written]}, "finish_reason": "length"});
            let usage = json!({"completion_tokens": 1, "prompt_tokens": body["prompt"].as_array().map(Vec::len)});
            (
                200,
                json!({"choices": [choice], "usage": usage}).to_string(),
            )
        }
        "/completion" => {
            let mut ids = body["prompt"].as_array().expect("ids").clone();
            let n = ids.len();
            ids.push(body["logit_bias"][0][0].clone());
            let lines =
                std::fs::read_to_string(fixture("llama.window_bf16.jsonl")).expect("a side");
            let mut rows = lines
                .lines()
                .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
            let row = rows.find(|row| row["ids"].as_array().expect("ids").starts_with(&ids));
            let logprob = &row.expect("ids of the side")["logprobs"][n];
            let written =
                json!({"id": ids[n], "token": "x", "logprob": logprob, "top_logprobs": []});
            (
                200,
                json!({"completion_probabilities": [written], "tokens_evaluated": n}).to_string(),
            )
        }
        _ => (
            404,
            json!({"error": {"message": "File Not Found"}}).to_string(),
        ),
    }
}

#[test]
fn llama_cpps_server_is_made_to_write_each_token_of_a_prompt() {
    let directory = tempfile::tempdir().expect("a directory");
    let answers = directory.path().join("answers.jsonl");
    let kept = ["--answers", answers.to_str().expect("a path")];
    let (code, said, problem) = checked(&serve(as_llama_cpp), &kept);
    assert_eq!(code, Some(1), "{said} {problem}");
    assert!(said.contains("a window of 32 keys"), "{said}");
    // What was kept is a table of whole prompts.
    let model = fixture("llama");
    let output = attnscope(&["diff", "--quiet", kept[1], model.to_str().expect("a path")]);
    assert!(text(&output.stdout).contains("a window of 32 keys"));
    let other = |path: &str, body: &Value| {
        let (status, answer) = as_llama_cpp(path, body);
        (
            status,
            answer.replace("\"tokens_evaluated\":", "\"tokens_evaluated\":1"),
        )
    };
    let (code, _, problem) = checked(&serve(other), &["--api", "llama-cpp"]);
    assert_eq!(code, Some(2));
    assert!(
        problem.contains("ran 11 tokens, expected the 1 that were sent"),
        "{problem}"
    );
}
