{
  pkgs,
  tools,
  packages,
}:
let
  glmFromCheckout =
    python:
    pkgs.writeShellScriptBin "glm" ''
      exec ${python}/bin/python -m glm_engine "$@"
    '';

  develop =
    python: cuda:
    pkgs.mkShell {
      packages =
        tools.lowering
        ++ tools.check
        ++ cuda
        ++ [
          (glmFromCheckout python)
          python
        ];
      CUDA_HOME = builtins.concatStringsSep ":" (map toString cuda);
      shellHook = ''
        export GLM_ROOT="$PWD"
        export GLM_PYTHON=${python}/bin/python
        export PYTHONPATH="$PWD/python"
        export PYTHONNOUSERSITE=1
        export CC=${pkgs.stdenv.cc}/bin/cc
        export CXX=${pkgs.stdenv.cc}/bin/c++
      '';
    };
in
{
  default = develop tools.python.cuda [ tools.cuda12 ];
  cuda13 = develop tools.python.cuda [ tools.cuda13 ];
  cpu = develop tools.python.base [ ];
  run = pkgs.mkShell { packages = [ packages.cpu ]; };
}
