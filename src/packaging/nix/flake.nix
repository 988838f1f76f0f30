# attnscope as a Nix flake: nix run "path:.?dir=src/packaging/nix" from the top of the repository.
{
  description = "An attention debugger for the terminal";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs =
    { self, nixpkgs }:
    let
      systems = [ "x86_64-linux" "aarch64-linux" "x86_64-darwin" "aarch64-darwin" ];
      each = make: nixpkgs.lib.genAttrs systems (system: make nixpkgs.legacyPackages.${system});
    in
    {
      packages = each (pkgs: {
        default = pkgs.rustPlatform.buildRustPackage {
          pname = "attnscope";
          version = "0.1.0";
          src = ../../..;
          cargoLock.lockFile = ../../../Cargo.lock;
          # The tests press keys on a terminal and need the whole tree; .ci/run has them.
          doCheck = false;
          nativeBuildInputs = [ pkgs.installShellFiles ];
          postInstall = ''
            installManPage src/packaging/wheel/data/share/man/man1/*.1
          '';
          meta = {
            description = "An attention debugger for the terminal";
            license = [ pkgs.lib.licenses.mit pkgs.lib.licenses.asl20 ];
            mainProgram = "attnscope";
          };
        };
      });
    };
}
