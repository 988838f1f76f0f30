//! What llama.cpp's log says besides tensors: the architecture of the file, and the ids of the prompt.

/// What a log says of the model and of its prompt.
#[derive(Default)]
pub(super) struct Said {
    pub architecture: Option<String>,
    pub ids: Vec<u32>,
    /// How many ids the next line lists.
    n_listed: Option<usize>,
}

impl Said {
    /// Takes a line that belongs to no tensor. `llama-eval-callback` writes ids one a line before the pass; `llama-debug`
    /// writes them as `piece(id)` in one line after it.
    pub fn line(&mut self, line: &str) {
        let line = without_time(line);
        let of = |key: &str| {
            let value = line.split_once(key)?.1.rsplit_once('=')?.1;
            Some(value.trim().to_owned())
        };
        if self.architecture.is_none() {
            self.architecture = of("general.architecture").or_else(|| of("print_info: arch "));
        }
        if let Some(n) = self.n_listed.take() {
            let ids = listed_ids(line);
            if ids.len() == n {
                self.ids = ids;
            }
            return;
        }
        let counted = line.strip_prefix("Token ids (");
        self.n_listed = counted.and_then(|n| n.strip_suffix("):")?.parse().ok());
        if line.starts_with("number of input tokens =") {
            self.ids.clear();
        } else if let Ok(id) = line.parse::<u32>() {
            self.ids.push(id);
        }
    }
}

/// The ids of `the(5) end(9)`: numbers in brackets that a space or the end of the line follows.
fn listed_ids(line: &str) -> Vec<u32> {
    let words = line.split(' ').filter_map(|word| word.strip_suffix(')'));
    let ids = words.filter_map(|word| word.rsplit_once('(')?.1.parse().ok());
    ids.collect()
}

/// A line without the time and the level that recent releases put before it: `0.00.152.197 I   1`.
fn without_time(line: &str) -> &str {
    let Some((time, rest)) = line.split_once(' ') else {
        return line;
    };
    let is_time = time.contains('.') && time.bytes().all(|b| b == b'.' || b.is_ascii_digit());
    match rest.trim_start().split_once(' ') {
        Some((level, said)) if is_time && ["D", "I", "W", "E"].contains(&level) => said.trim(),
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(lines: &[&str]) -> Said {
        let mut said = Said::default();
        lines.iter().for_each(|line| said.line(line));
        said
    }

    #[test]
    fn ids_are_read_with_and_without_a_time_before_them() {
        let recent = [
            "0.00.087.691 I number of input tokens = 2",
            "0.00.087.691 I   5",
            "0.00.087.692 I   20",
        ];
        assert_eq!(said(&recent).ids, [5, 20]);
        assert_eq!(
            said(&["number of input tokens = 2", "5", "20"]).ids,
            [5, 20]
        );
        let of =
            "0.00.127.687 I llama_model_loader: - kv   0:   general.architecture str   = llama";
        assert_eq!(said(&[of]).architecture.as_deref(), Some("llama"));
    }

    #[test]
    fn ids_behind_their_pieces_count_if_all_of_them_are_found() {
        let found = said(&["Token ids (4):", "b(1)  (a)(7) c(20) x(23) "]);
        assert_eq!(found.ids, [1, 7, 20, 23]);
        assert_eq!(said(&["Token ids (3):", "b(1) c(20)"]).ids, [0; 0]);
    }
}
