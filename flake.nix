{
  description = "GLM inference engine: Terra engine, Futhark mathematics, CPU and CUDA devices";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-25.11";

  outputs =
    { self, nixpkgs }:
    let
      systems = [ "x86_64-linux" ];
      forEachSystem =
        make:
        nixpkgs.lib.genAttrs systems (
          system:
          make (
            import ./nix {
              source = self;
              pkgs = import nixpkgs {
                inherit system;
                config.allowUnfree = true;
              };
            }
          )
        );
    in
    {
      packages = forEachSystem (project: project.packages);
      devShells = forEachSystem (project: project.shells);
      checks = forEachSystem (project: project.checks);
      formatter = forEachSystem (project: project.formatter);
      apps = forEachSystem (project: project.apps);
    };
}
