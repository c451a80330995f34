// Two real registries by other people: distribution, with files and passwords, so that no cloud's storage is compiled;
// and the one of go-containerregistry, which keeps everything in memory and knows the referrers API.
package main

import (
	"fmt"
	"net/http"
	"os"

	"github.com/distribution/distribution/v3/registry"
	_ "github.com/distribution/distribution/v3/registry/auth/htpasswd"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem"
	memory "github.com/google/go-containerregistry/pkg/registry"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "referrers" {
		fmt.Fprintln(os.Stderr, http.ListenAndServe(os.Args[2], memory.New(memory.WithReferrersSupport(true))))
		os.Exit(1)
	}
	if registry.RootCmd.Execute() != nil {
		os.Exit(1)
	}
}
