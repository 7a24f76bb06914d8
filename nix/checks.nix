{
  pkgs,
  source,
  tools,
  packages,
}:
let
  inCheckout =
    name: command:
    pkgs.stdenv.mkDerivation {
      inherit name;
      src = source;
      nativeBuildInputs = tools.check ++ [ tools.python.base ];
      GLM_BUILD_CACHE = "off";
      HOME = "/build";
      PYTHONPATH = "python";
      buildPhase = ''
        git init --quiet
        git add .
        ${command}
      '';
      installPhase = ''
        touch "$out"
      '';
    };
in
{
  inherit (packages) cpu cuda;
  smoke = inCheckout "glm-smoke" "scons smoke";
  tests = inCheckout "glm-tests" ''
    patchShebangs .
    scons test
  '';
  rules = inCheckout "glm-source-rules" "scons check";
  formatting = pkgs.runCommand "glm-nix-formatting" { nativeBuildInputs = [ pkgs.nixfmt ]; } ''
    nixfmt --check ${source}/flake.nix ${source}/nix/*.nix ${source}/replit.nix
    touch "$out"
  '';
}
