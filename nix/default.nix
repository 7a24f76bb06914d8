{ pkgs, source }:
let
  tools = import ./tools.nix { inherit pkgs; };
  glm = import ./package.nix { inherit pkgs source tools; };
in
{
  packages = {
    default = glm;
    inherit glm;
  };
  shells = import ./shells.nix { inherit pkgs tools glm; };
  checks = import ./checks.nix {
    inherit
      pkgs
      source
      tools
      glm
      ;
  };
  formatter = pkgs.nixfmt-tree;
  apps.default = {
    type = "app";
    program = "${glm}/bin/glm";
    meta.description = "The glm command";
  };
}
