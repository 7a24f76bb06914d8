{ root }:
let
  flake = import (root + "/flake.nix");
  outputs = flake.outputs {
    self.outPath = toString root;
    nixpkgs = {
      outPath = toString ./packages;
      lib.genAttrs =
        names: make:
        builtins.listToAttrs (
          map (name: {
            inherit name;
            value = make name;
          }) names
        );
    };
  };
  system = "x86_64-linux";
  shell = name: {
    inherit (outputs.devShells.${system}.${name}) CUDA_HOME shellHook;
    packages = map (one: one.name) outputs.devShells.${system}.${name}.packages;
  };
in
{
  outputs = builtins.attrNames outputs;
  checks = builtins.attrNames outputs.checks.${system};
  packages = builtins.attrNames outputs.packages.${system};
  shells = builtins.attrNames outputs.devShells.${system};
  develop = shell "default";
  run = shell "run";
  formatter = outputs.formatter.${system}.name;
  program = outputs.apps.${system}.default.program;
  build = outputs.packages.${system}.default.buildPhase;
  smoke = outputs.checks.${system}.smoke.buildPhase;
  formatting = outputs.checks.${system}.formatting.script;
  inputs = flake.inputs;
}
