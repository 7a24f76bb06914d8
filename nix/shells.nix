{
  pkgs,
  tools,
  glm,
}:
let
  glmFromCheckout = pkgs.writeShellScriptBin "glm" ''
    exec ${tools.developPython}/bin/python -m glm_engine "$@"
  '';

  environment = python: ''
    export GLM_ROOT="$PWD"
    export GLM_PYTHON=${python}/bin/python
    export PYTHONPATH="$PWD/python:${python}/${tools.sitePackages}"
    export PYTHONNOUSERSITE=1
    export CC=${pkgs.stdenv.cc}/bin/cc
    export CXX=${pkgs.stdenv.cc}/bin/c++
  '';
in
rec {
  default = develop;

  develop = pkgs.mkShell {
    packages =
      tools.build
      ++ tools.check
      ++ [
        glmFromCheckout
        tools.cudaHome
        tools.developPython
      ];
    CUDA_HOME = "${tools.cudaHome}";
    CUTLASS_HOME = "${tools.cutlass}";
    shellHook = environment tools.developPython;
  };

  run = pkgs.mkShell {
    packages = [
      glm
      tools.runPython
    ];
    GLM_MODEL = "${glm}/share/glm/checkpoints/capitals";
    CUDA_HOME = "${tools.cudaHome}";
    shellHook = environment tools.runPython;
  };
}
