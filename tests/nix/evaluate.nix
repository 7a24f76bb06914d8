{ root, nixpkgs }:
let
  system = "x86_64-linux";
  pkgs = import nixpkgs {
    inherit system;
    config.allowUnfree = true;
  };
  outputs = (import (root + "/flake.nix")).outputs {
    self.outPath = toString root;
    nixpkgs = (import (nixpkgs + "/flake.nix")).outputs { self = { }; } // {
      outPath = toString nixpkgs;
    };
  };
  own = builtins.mapAttrs (_: output: output.${system}) outputs;
  replit = import (root + "/replit.nix") { inherit pkgs; };
  namesOf = map (one: one.name);
  pythonOf =
    package:
    builtins.head (
      builtins.filter (one: one ? arguments.wheels) package.arguments.nativeBuildInputs
    );
in
{
  names = builtins.mapAttrs (
    _: output: if output ? drvPath then output.name else builtins.attrNames output
  ) own;
  derivations = builtins.mapAttrs (_: builtins.mapAttrs (_: one: one.drvPath)) {
    inherit (own) packages checks devShells;
  };
  programs = builtins.mapAttrs (_: app: app.program) own.apps;
  phases = builtins.mapAttrs (_: one: one.arguments.buildPhase) own.packages;
  commands = builtins.mapAttrs (_: one: one.arguments.buildPhase or one.buildCommand) own.checks;
  shells = builtins.mapAttrs (_: shell: {
    packages = namesOf shell.arguments.packages;
    shellHook = shell.arguments.shellHook or "";
    CUDA_HOME = shell.arguments.CUDA_HOME or "";
  }) own.devShells;
  wheels = builtins.mapAttrs (
    _: package: map (wheel: wheel.arguments) (pythonOf package).arguments.wheels
  ) own.packages;
  pythonOfShells = builtins.mapAttrs (
    _: shell:
    builtins.concatMap (one: namesOf (one.arguments.wheels or [ ])) shell.arguments.packages
  ) own.devShells;
  libraries = namesOf (pythonOf own.packages.cpu).arguments.buildInputs;
  formatter = own.formatter.drvPath;
  licences = builtins.mapAttrs (_: package: package.meta.license) own.packages;
  replit = {
    deps = namesOf replit.deps;
    libraries = replit.env.LD_LIBRARY_PATH;
  };
}
