# attnscope for Homebrew, from a copy of the repository: brew install --build-from-source --HEAD ./src/packaging/attnscope.rb
class Attnscope < Formula
  desc "Attention debugger for the terminal"
  license any_of: ["MIT", "Apache-2.0"]
  # No release is published yet: HEAD is the repository that holds this file.
  head "file://#{File.expand_path("../..", __dir__)}", using: :git

  depends_on "rust" => :build

  def install
    system "cargo", "install", *std_cargo_args
    man1.install Dir["src/packaging/wheel/data/share/man/man1/*.1"]
    generate_completions_from_executable(bin/"attnscope", "completions")
  end

  test do
    assert_match "induction", shell_output("#{bin}/attnscope demo")
  end
end
