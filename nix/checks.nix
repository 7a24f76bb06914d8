{
  pkgs,
  source,
  tools,
  glm,
}:
let
  inCheckout =
    name: command:
    pkgs.stdenv.mkDerivation {
      inherit name;
      src = source;
      nativeBuildInputs =
        tools.build
        ++ tools.check
        ++ [
          tools.developPython
        ];
      dontUseSconsBuild = true;
      PYTHONPATH = "python:${tools.developPython}/${tools.sitePackages}";
      GLM_BUILD_CACHE = "off";
      HOME = "/build";
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
  inherit glm;
  smoke = inCheckout "glm-smoke" "scons smoke";
  tests = inCheckout "glm-tests" "scons test";
  rules = inCheckout "glm-source-rules" "python tools/check";
  formatting = pkgs.runCommand "glm-nix-formatting" { nativeBuildInputs = [ pkgs.nixfmt-rfc-style ]; } ''
    nixfmt --check ${source}/flake.nix ${source}/nix/*.nix ${source}/replit.nix
    touch "$out"
  '';
}
