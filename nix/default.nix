{ pkgs, source }:
let
  tools = import ./tools.nix { inherit pkgs; };
  package = arguments: import ./package.nix ({ inherit pkgs source; } // arguments);
  packages = rec {
    default = cpu;
    cpu = package {
      name = "cpu";
      python = tools.python.base;
      targets = [
        "cpu"
        "engine"
      ];
    };
    cuda = package {
      name = "cuda";
      python = tools.python.cuda;
      targets = [
        "cpu"
        "engine"
        "cuda"
        "wrappers"
      ];
      cudaHome = tools.cuda12;
    };
  };
  app = package: {
    type = "app";
    program = "${package}/bin/glm";
    meta.description = "The glm command";
  };
in
{
  inherit packages;
  shells = import ./shells.nix { inherit pkgs tools packages; };
  checks = import ./checks.nix {
    inherit
      pkgs
      source
      tools
      packages
      ;
  };
  formatter = pkgs.nixfmt-tree;
  apps = rec {
    default = glm;
    glm = app packages.cpu;
    glm-cuda = app packages.cuda;
  };
}
